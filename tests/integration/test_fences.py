"""Each protective mechanism at the moment it is for; then without it, to see the harm."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.integration import crash
from tests.integration.client import Client, Json
from tests.integration.crash import TASK, TOOLS, careful
from tests.integration.killable import Action
from tests.integration.process import Process
from tests.integration.stack import LEASE_S, Stack, Stacks, seen
from tests.scripted.answers import Answer, held, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Scene:
    """One API process, one worker with a point in it, and a session."""

    stack: Stack
    client: Client
    worker: Process
    session_id: str
    model: ScriptedModel
    tools: ScriptedTools

    async def events(self) -> list[Json]:
        """Return the session's trace."""
        return await self.client.events(self.session_id)


class Script:
    """The weather run; its second request waits, so that a successor has nothing to write."""

    def __init__(self, *, second_waits: bool) -> None:
        self.hold = Hold()
        self._waits = second_waits

    def __call__(self, request: Body, n: int) -> Answer:
        if request["messages"][-1]["content"] == "thanks":
            return text("you are welcome")
        answer = careful(request, n)
        return held(self.hold, answer) if self._waits and n == 2 else answer


@asynccontextmanager
async def running(
    stacks: Stacks,
    script: Script,
    point: str,
    action: Action = "stop",
    *,
    lease_s: float = LEASE_S,
    without: Iterable[str] = (),
) -> AsyncIterator[Scene]:
    """Begin a session with a worker that is struck at a point."""
    async with AsyncExitStack() as kept:
        model = await kept.enter_async_context(ScriptedModel(script))
        tools = await kept.enter_async_context(ScriptedTools())
        env = {"SUREFOOT_TOOL_TIMEOUT_S": "2"}
        stack = await kept.enter_async_context(
            stacks.open(model=model.base_url, lease_s=lease_s, env=env)
        )
        client = stack.client(await stack.start("api"))
        worker = await stack.start("worker", point=point, action=action, without=without)
        await client.register(*tools.specs()[:2])
        session_id = await client.create(TASK, tools=TOOLS)
        yield Scene(stack, client, worker, session_id, model, tools)


async def stopped_with_an_answer(stacks: Stacks, without: Iterable[str] = ()) -> bool:
    """Stop the owner before it writes the first answer; return whether it wrote it in the end.

    Its successor is asking the model and has written nothing: the head is where it was, so that
    only the epoch tells whose session it is.
    """
    script = Script(second_waits=True)
    async with running(stacks, script, "append:2:before", without=without) as scene:
        await until(lambda: scene.worker.frozen, timeout_s=60)
        one = {"SUREFOOT_WORKER_SLOTS": "1"}
        await scene.stack.start("worker", env=one)
        await scene.model.asked(2)
        before = await scene.events()
        scene.worker.thaw()
        other = await scene.client.create(TASK, tools=TOOLS)
        await scene.client.reached(other, "completed")
        after = await scene.events()
        script.hold.release()
        assert (await scene.client.settled(scene.session_id))["status"] == "completed"
        return after != before


@pytest.mark.case("C069")
@pytest.mark.req("STATE-4")
async def test_the_epoch_tells_whose_session_it_is(stacks: Stacks) -> None:
    assert not await stopped_with_an_answer(stacks)


async def test_without_the_epoch_the_old_owner_writes(stacks: Stacks) -> None:
    assert await stopped_with_an_answer(stacks, ["fence"])


async def lost_answer(
    stacks: Stacks, n: int, *, lease_s: float = 15, without: Iterable[str] = ()
) -> tuple[str, int]:
    """Lose the answer of a commit; return how the session goes on, and how often it was claimed."""
    script = Script(second_waits=False)
    point = f"append:{n}:after"
    async with running(stacks, script, point, "lose", lease_s=lease_s, without=without) as scene:
        session = await scene.client.reached(
            scene.session_id, "completed", "waiting", "failed", timeout_s=60
        )
        rows = await scene.stack.rows("select epoch from sessions")
        ids = [e["seq"] for e in await scene.events()]
        assert ids == list(range(1, len(ids) + 1))
        assert len([d for d in scene.tools.received if d.tool == "create_reminder"]) <= 1
        return session["status"], rows[0]["epoch"]


@pytest.mark.req("STATE-1", "TOOL-10")
@pytest.mark.parametrize("n", range(1, 7))
async def test_an_append_whose_answer_is_lost_is_looked_up(stacks: Stacks, n: int) -> None:
    assert await lost_answer(stacks, n) == ("completed", 1)


async def late_message(stacks: Stacks, without: Iterable[str] = ()) -> bool:
    """Send a message while the owner is about to end the turn; return whether it is answered."""
    script = Script(second_waits=False)
    async with running(stacks, script, "append:6:before", without=without) as scene:
        await until(lambda: scene.worker.frozen, timeout_s=60)
        path = f"/v1/sessions/{scene.session_id}/messages"
        body = {"text": "thanks", "when_busy": "enqueue"}
        assert (await scene.client.post(path, body, expect=202))["receipt"] == "enqueued"
        scene.worker.thaw()
        other = await scene.client.create(TASK, tools=TOOLS)
        await scene.client.reached(other, "completed")
        try:
            await until(lambda: answered(scene), timeout_s=3)
        except TimeoutError:
            return False
        return True


async def answered(scene: Scene) -> bool:
    """Return whether the second turn has ended."""
    return seen(await scene.events()).count("turn.ended") == 2


@pytest.mark.req("API-7", "STATE-1")
async def test_a_message_at_the_last_moment_keeps_the_owner(stacks: Stacks) -> None:
    assert await late_message(stacks)


async def test_without_the_condition_of_the_release_it_is_not_seen(stacks: Stacks) -> None:
    assert not await late_message(stacks, ["release"])


async def test_without_doubt_the_reminder_is_made_twice(stacks: Stacks) -> None:
    found = await crash.run(stacks, crash.Case("done:create_reminder"), ["doubt"])
    assert found.after.deliveries["create_reminder"] == 2


async def test_without_reading_back_a_person_is_asked_for_nothing(stacks: Stacks) -> None:
    status, claims = await lost_answer(stacks, 4, lease_s=LEASE_S, without=["read back"])
    assert status == "waiting"
    assert claims > 1
