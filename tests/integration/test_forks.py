"""Forks: a prefix of a session, and another way on from there (STATE-7)."""

import pytest

from tests.integration.client import Json
from tests.integration.people import Scene, people
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import Answer, args, calls, tc, text
from tests.scripted.history import Body

pytestmark = pytest.mark.req("STATE-7")


def script(request: Body, _n: int) -> Answer:
    """Call echo and pay, then say what came of it and what the user said last."""
    messages = request["messages"]
    users = [str(m["content"]) for m in messages if m["role"] == "user"]
    if messages[-1]["role"] == "user":
        return calls(tc(None, "echo", args(text="a")), tc(None, "pay", args(amount=5)))
    results = [str(m["content"]) for m in messages if m["role"] == "tool"]
    return text(f"{users[-1]}: {results[-2]} | {results[-1]}")


async def _fork(scene: Scene, session: str, at_seq: int, **fields: object) -> str:
    body = {"at_seq": at_seq, **fields}
    made = await scene.client.post(f"/v1/sessions/{session}/fork", body, expect=201)
    assert made["parent"] == session
    return str(made["id"])


async def _ended(scene: Scene) -> tuple[str, list[Json]]:
    session = await scene.client.create("first")
    await scene.client.reached(session, "completed")
    return session, await scene.client.events(session)


def _at(events: list[Json], kind: str, nth: int = 0) -> int:
    return int([e["seq"] for e in events if e["type"] == kind][nth])


@pytest.mark.req("TOOL-10", "TOOL-17")
async def test_what_changes_the_world_is_put_to_a_person_in_a_fork(stacks: Stacks) -> None:
    async with people(stacks, script) as scene:
        session, events = await _ended(scene)
        fork = await _fork(scene, session, _at(events, "model.requested"))
        (approval,) = (await scene.waiting(fork, "approval"))["approvals"]
        assert (approval["name"], scene.paid()) == ("pay", [5])
        await scene.decide(approval["id"], "approve")
        await scene.client.reached(fork, "completed")
        assert scene.paid() == [5, 5]
        parent = await scene.client.events(session)
        assert parent == events
        trace = await scene.client.events(fork)
        assert [e["seq"] for e in trace] == list(range(1, len(trace) + 1))
        taken = seen(trace).index("session.forked")
        assert 2 <= taken < _at(events, "model.requested")
        assert seen(trace)[:taken] == seen(events)[:taken]
        traces = {(await scene.client.session(s))["trace_id"] for s in (session, fork)}
        assert len(traces) == 2


async def test_a_given_result_is_what_the_model_is_told(stacks: Stacks) -> None:
    async with people(stacks, script) as scene:
        session, events = await _ended(scene)
        paid = next(
            e for e in events if e["type"] == "tool.finished" and e["data"]["name"] == "pay"
        )
        result = {"call_id": paid["data"]["call_id"], "output": {"refused": True}}
        last = max(e["seq"] for e in events if e["type"] == "tool.finished")
        fork = await _fork(scene, session, last, tool_result=result)
        shown = await scene.client.reached(fork, "completed")
        assert "refused" in shown["result"]["text"]
        assert "a" in shown["result"]["text"]
        assert scene.paid() == [5]
        bad = {"at_seq": len(events), "tool_result": result}
        problem = await scene.client.post(f"/v1/sessions/{session}/fork", bad, expect=422)
        assert problem["errors"][0]["pointer"] == "/tool_result/call_id"


async def test_another_task_from_every_event(stacks: Stacks) -> None:
    """Wherever a session is forked, the fork can go on: its history is one a provider takes."""
    async with people(stacks, script, pay={"approval": "never"}) as scene:
        session, events = await _ended(scene)
        forks = [
            await _fork(scene, session, at_seq, task=f"other {at_seq}")
            for at_seq in range(1, len(events) + 1)
        ]
        for fork in forks:
            (approval,) = (await scene.waiting(fork, "approval"))["approvals"]
            await scene.decide(approval["id"], "deny")
        for at_seq, fork in enumerate(forks, start=1):
            shown = await scene.client.reached(fork, "completed")
            assert f"other {at_seq}: " in shown["result"]["text"]
            ends = seen(await scene.client.events(fork)).count("turn.ended")
            assert ends == shown["turn"]
        assert scene.paid() == [5]


async def test_a_fork_without_anything_new_goes_on_or_rests(stacks: Stacks) -> None:
    async with people(stacks, script) as scene:
        session, events = await _ended(scene)
        whole = await _fork(scene, session, len(events))
        shown = await scene.client.reached(whole, "completed")
        assert shown["result"]["text"] == (await scene.client.session(session))["result"]["text"]
        for body, pointer in (
            ({"at_seq": len(events) + 1}, "/at_seq"),
            ({"at_seq": 0}, "/at_seq"),
            ({"at_seq": 1}, "/at_seq"),  # no turn yet and no task: it would be queued for ever
            ({"at_seq": 1, "model": "nobody"}, "/model"),
            ({"at_seq": 1, "prompts": {"agent": {"name": "other"}}}, "/prompts/agent"),
        ):
            problem = await scene.client.post(f"/v1/sessions/{session}/fork", body, expect=422)
            assert problem["errors"][0]["pointer"] == pointer
        keyed = {"Idempotency-Key": "fork-1"}
        path, body = f"/v1/sessions/{session}/fork", {"at_seq": 1, "task": "again"}
        first = await scene.client.http.post(path, json=body, headers=keyed)
        second = await scene.client.http.post(path, json=body, headers=keyed)
        assert first.json()["id"] == second.json()["id"]
        assert second.headers["Idempotency-Replayed"] == "true"
