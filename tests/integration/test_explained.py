"""Everything explained over HTTP: states, requests, replays and reasons of real sessions."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx2
import pytest

from tests.integration.client import Client, Json
from tests.integration.ground import Ground, standing
from tests.integration.process import Process
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import weather
from tests.scripted.tools import ScriptedTools
from tests.waiting import until


async def why(client: Client, session_id: str) -> tuple[str, Json]:
    """Return the sentences as one text, and the whole explanation."""
    shown = await client.get(f"/v1/sessions/{session_id}/why")
    return " ".join(shown["sentences"]), shown


@asynccontextmanager
async def forger(stack: Stack) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Someone who is master of the database: triggers are off."""
    stack.sound = False
    connection = await asyncpg.connect(stack.dsn)
    try:
        await connection.execute("set session_replication_role = replica")
        yield connection
    finally:
        await connection.close()


async def _weather(ground: Ground) -> tuple[str, list[Json]]:
    run = await ground.run(weather, words="Is rain coming? Then remind me.")
    assert run.session["status"] == "completed"
    return run.id, run.events


@pytest.mark.req("STATE-6")
async def test_any_past_state_is_there_by_its_number(stacks: Stacks) -> None:
    async with standing(stacks) as ground:
        session_id, events = await _weather(ground)
        path = f"/v1/sessions/{session_id}/state"
        last = await ground.client.get(path)
        assert (last["seq"], last["status"], last["owed"]) == (len(events), "completed", [])
        assert last["ended"]["reason"] == "final_answer"
        assert [m["role"] for m in last["history"]][:3] == ["user", "assistant", "tool"]
        for event in events:
            state = await ground.client.get(f"{path}?at_seq={event['seq']}")
            told = {k: event[k] for k in ("seq", "at", "turn", "step", "phase")}
            assert {k: state[k] for k in told} == told
            if event["type"] == "tool.intended":
                call_id = event["data"]["call_id"]
                assert f"tool:{call_id}:1" in state["owed"]
        for beyond, status in ((0, 422), (len(events) + 1, 422), (10**30, 422), ("x", 400)):
            refused = await ground.client.http.get(f"{path}?at_seq={beyond}")
            assert (refused.status_code, "at_seq" in refused.text) == (status, True)


@pytest.mark.req("STATE-6")
async def test_what_the_model_was_sent_is_what_it_got(stacks: Stacks) -> None:
    async with standing(stacks) as ground:
        run = await ground.run(weather, words="Is rain coming?")
        shown = await ground.client.get(f"/v1/sessions/{run.id}/messages")
        got = run.requests[-1]
        assert shown["intact"] is True
        assert shown["model"] == got["model"]
        assert [m["role"] for m in shown["messages"]] == [m["role"] for m in got["messages"]]
        for mine, sent in zip(shown["messages"], got["messages"], strict=True):
            assert (mine["content"] or None) == (sent.get("content") or None)
            assert mine.get("tool_calls") == sent.get("tool_calls")
            assert mine.get("tool_call_id") == sent.get("tool_call_id")
        offered = {tool["function"]["name"] for tool in got["tools"]}
        assert set(shown["tools"]) <= offered


@pytest.mark.req("STATE-6", "API-11", "STATE-8")
async def test_a_session_is_decided_again_and_its_chain_holds(stacks: Stacks) -> None:
    async with standing(stacks) as ground:
        session_id, events = await _weather(ground)
        client = ground.client
        path = f"/v1/sessions/{session_id}/replay"
        for again in (False, True):
            answer = await client.http.post(path, headers={"Idempotency-Key": "r1"})
            found = answer.json()
            assert (found["identical"], found["events"]) == (True, len(events))
            assert found["code_version"]
            assert ("idempotency-replayed" in answer.headers) is again
        assert (await client.http.post(path, json={"a": 1})).status_code == 422
        chain = await client.get(f"/v1/audit/verify?session={session_id}")
        assert chain["data"] == [{"session": session_id, "events": len(events), "intact": True}]
        others = [await client.create("task0 Is rain coming?") for _ in range(3)]
        for one in others:
            await client.settled(one)
        first = await client.get("/v1/audit/verify?limit=3")
        rest = await client.get(f"/v1/audit/verify?limit=3&after={first['next']}")
        assert (first["intact"], rest["intact"], rest["next"]) == (True, True, None)
        ids = [one["session"] for one in (*first["data"], *rest["data"])]
        assert ids == sorted((*others, session_id), reverse=True)
        for missing in ("ses_0", "nonsense"):
            answer = await client.http.get(f"/v1/audit/verify?session={missing}")
            assert answer.status_code == 404


async def test_a_session_at_rest_says_how_it_came_there_and_goes_on(stacks: Stacks) -> None:
    async with standing(stacks) as ground:
        session_id, _ = await _weather(ground)
        told, shown = await why(ground.client, session_id)
        assert "Turn 1 began on" in told
        assert "get_weather ok" in told
        assert "as completed (final_answer)" in told
        assert "Nobody owns it, and nobody needs to." in told
        assert shown["todo"] == ["A message starts its next turn."]
        stopped = await ground.run(weather, limits={"max_steps": 1})
        told, shown = await why(ground.client, stopped.id)
        assert "as stopped (max_steps): " in told
        assert f"surefoot resume {stopped.id}" in shown["todo"][0]


async def _owned_and_lost(stack: Stack, client: Client, session_id: str, owner: Process) -> None:
    told, shown = await why(client, session_id)
    assert f"Worker {owner.worker} owns it under epoch 1." in shown["doing"]
    assert "It owes the result of slow" in told
    owner.kill()
    await stack.lease_over(owner)
    told, shown = await why(client, session_id)
    assert "lost its lease" in told
    assert "No worker is alive." in shown["wakes"]
    assert any("surefoot serve --role worker" in todo for todo in shown["todo"])


@pytest.mark.req("STATE-4", "STATE-6")
async def test_a_session_that_was_taken_over_says_who_lost_it_and_what_is_in_doubt(
    stacks: Stacks,
) -> None:
    script = by_text({"go": [SLOW, text("done")]})
    async with (
        ScriptedModel(script) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url) as stack,
    ):
        hold = tools.hold_before("slow")
        api, owner = await stack.start("api"), await stack.start("worker")
        client = stack.client(api)
        slow = next(spec for spec in tools.specs() if spec["name"] == "slow")
        await client.register({**slow, "effect": "once", "timeout_s": 1})
        session_id = await client.create("go", limits={"tool_timeout_s": 1})
        await hold.reached()
        await _owned_and_lost(stack, client, session_id, owner)
        second = await stack.start("worker")

        async def in_doubt() -> bool:
            return bool((await why(client, session_id))[1]["uncertain"])

        await until(in_doubt, timeout_s=60)
        await client.reached(session_id, "waiting", timeout_s=60)
        told, shown = await why(client, session_id)
        assert f"Worker {second.worker} took it over" in told
        assert f"{owner.worker} had lost it" in told
        assert "is never sent twice" in shown["uncertain"][0]
        call_id = (await client.session(session_id))["pending"]["calls"][0]["call_id"]
        assert f"surefoot verify {session_id} {call_id} happened" in shown["todo"][0]
        replayed = await client.post(f"/v1/sessions/{session_id}/replay")
        assert replayed["identical"] is True
        hold.release()


@pytest.mark.req("STATE-8", "API-12")
async def test_content_that_does_not_open_is_said_and_not_a_fault_of_ours(stacks: Stacks) -> None:
    """Erased, under a wrong key, changed, and cut: problems, but never 500; `why` still tells."""
    async with standing(stacks) as ground:
        client = ground.client
        runs = [await ground.run(weather) for _ in range(4)]
        erased, torn, changed, cut = [run.id for run in runs]
        async with forger(ground.stack) as database:
            await database.execute("update sessions set data_key = '' where id = $1", erased)
            await database.execute("update sessions set data_key = 'x' where id = $1", torn)
            await database.execute(
                "update events set payload = 'x' where session_id = $1 and seq = 5", changed
            )
            await database.execute("delete from events where session_id = $1 and seq > 5", cut)
        expected = {erased: "session-erased", torn: "session-unreadable"}
        for session_id in (erased, torn, changed, cut):
            slug = expected.get(session_id, "session-unreadable")
            answers = [
                await client.http.get(f"/v1/sessions/{session_id}/{what}")
                for what in ("state", "messages", "events")
            ]
            answers.append(await client.http.post(f"/v1/sessions/{session_id}/replay"))
            if session_id == cut:
                assert answers.pop(2).status_code == httpx2.codes.OK  # what is left of its trace
            for answer in answers:
                assert (answer.status_code, answer.json()["type"]) == (409, f"/problems/{slug}")
            told, shown = await why(client, session_id)
            assert "Its row alone says: completed, turn 1" in told
            closed = slug == "session-erased"
            todo = "It takes nothing any more" if closed else "A message starts its next turn."
            assert [said.partition(":")[0] for said in shown["todo"]] == [todo]
        chains = await client.get("/v1/audit/verify")
        faults = {c["session"]: (c["intact"], c.get("broken", {})) for c in chains["data"]}
        assert chains["intact"] is False
        assert faults[erased] == (True, {})  # erasing is no damage
        assert (faults[torn][1]["seq"], faults[torn][1]["fault"]) == (0, "sealed")
        assert (faults[changed][1]["seq"], faults[changed][1]["fault"]) == (5, "hash")
        assert (faults[cut][1]["seq"], faults[cut][1]["fault"]) == (6, "cut")


async def test_a_session_that_has_asked_nothing_was_sent_nothing(stacks: Stacks) -> None:
    async with stacks.open() as stack:
        client = stack.client(await stack.start("api"))
        session_id = await client.create("hello")
        shown = await client.get(f"/v1/sessions/{session_id}/messages")
        assert (shown["seq"], shown["messages"]) == (None, [])
        told, _ = await why(client, session_id)
        assert "Nobody owns it; it is due." in told
        assert "Start a worker" in told
        assert (await client.post(f"/v1/sessions/{session_id}/replay"))["events"] == 2
        for what in ("state", "messages", "why"):
            answer = await client.http.get(f"/v1/sessions/ses_0/{what}")
            assert json.loads(answer.text)["type"] == "/problems/session-not-found"
