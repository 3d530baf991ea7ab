"""Cancel: it settles in every phase, and what has ended stays as it ended."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest

from tests.integration.client import Client, Json
from tests.integration.scripted import SLOW, last_said
from tests.integration.stack import Stack, Stacks, seen
from tests.scripted.answers import Answer, call, error, held, stream, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

SETTLES_S = 10.0
TRIES = 100


class Holds:
    """A model whose answer waits, for each session by its task; then it calls a tool."""

    def __init__(self) -> None:
        self.by_task: dict[str, Hold] = {}

    def __call__(self, request: Body, _n: int) -> Answer:
        task, done = last_said(request)
        if done:
            return text("done")
        hold = self.by_task.setdefault(task, Hold())
        answers = {
            "stream": lambda: stream({"content": "So far "}, hold, {"content": "so good."}),
            "text": lambda: held(hold, text("done")),
            "busy": lambda: error(503, "busy", {"Retry-After": "30"}),
            "slow": lambda: SLOW,
            "boom": lambda: call("boom"),
            "model": lambda: held(hold, call("echo", text=task)),
        }
        return answers[task.split()[0]]()

    async def reached(self, task: str) -> Hold:
        """Return the hold of a session once its answer waits at it."""
        await until(lambda: task in self.by_task, timeout_s=60)
        async with asyncio.timeout(60):
            await self.by_task[task].reached()
        return self.by_task[task]


@dataclass(frozen=True, slots=True)
class Scene:
    """One process, its client, its model and tools."""

    stack: Stack
    client: Client
    model: ScriptedModel
    tools: ScriptedTools
    holds: Holds


@asynccontextmanager
async def serving(stacks: Stacks) -> AsyncIterator[Scene]:
    """Yield a scene of one process that does everything."""
    holds = Holds()
    async with AsyncExitStack() as kept:
        model = await kept.enter_async_context(ScriptedModel(holds))
        tools = await kept.enter_async_context(ScriptedTools())
        stack = await kept.enter_async_context(stacks.open(model=model.base_url, lease_s=15))
        tools.hold_before("slow")
        client = stack.client(await stack.start("all"))
        names = {"slow", "boom", "echo"}
        await client.register(*(s for s in tools.specs() if s["name"] in names))
        yield Scene(stack, client, model, tools, holds)


async def _model(scene: Scene, _session_id: str) -> None:
    await scene.holds.reached("model")


async def _stream(scene: Scene, session_id: str) -> None:
    await scene.holds.reached("stream")
    del session_id


async def _tool(scene: Scene, _session_id: str) -> None:
    async with asyncio.timeout(60):
        await scene.tools.called()


async def _model_retry(scene: Scene, session_id: str) -> None:
    await _event(scene, session_id, "model.failed")


async def _tool_retry(scene: Scene, session_id: str) -> None:
    await _event(scene, session_id, "tool.attempted")


async def _event(scene: Scene, session_id: str, kind: str) -> None:
    async def there() -> bool:
        return kind in seen(await scene.client.events(session_id))

    await until(there, timeout_s=60, what=kind)


@pytest.mark.case("C071")
@pytest.mark.req("API-8", "STATE-10")
@pytest.mark.parametrize(
    ("task", "begun"),
    [
        ("model", _model),
        ("stream", _stream),
        ("slow", _tool),
        ("busy", _model_retry),
        ("boom", _tool_retry),
    ],
)
async def test_in_each_phase(
    stacks: Stacks, task: str, begun: Callable[[Scene, str], Awaitable[None]]
) -> None:
    async with serving(stacks) as scene:
        session_id = await scene.client.create(task)
        await begun(scene, session_id)
        began = time.monotonic()
        session = await scene.client.cancel(session_id)
        assert time.monotonic() - began < SETTLES_S
        await _is_cancelled(scene, session)
        assert (await scene.client.cancel(session_id)) == session


@pytest.mark.case("C071")
@pytest.mark.req("API-8")
async def test_while_the_database_is_slow(stacks: Stacks) -> None:
    """The append is under way, held up by a lock on the table of events."""
    async with serving(stacks) as scene:
        session_id = await scene.client.create("text")
        hold = await scene.holds.reached("text")
        async with asyncio.TaskGroup() as group:
            connection = await asyncpg.connect(scene.stack.dsn)
            async with connection.transaction():
                await connection.execute("lock table events in share row exclusive mode")
                hold.release()

                async def waiting() -> bool:
                    rows = await scene.stack.rows("select 1 from pg_locks where not granted")
                    return bool(rows)

                await until(waiting)
                cancelling = group.create_task(scene.client.cancel(session_id))
            began = time.monotonic()
            session = await cancelling
            await connection.close()
        assert time.monotonic() - began < SETTLES_S
        assert session["status"] in {"completed", "cancelled"}
        events = await scene.client.events(session_id)
        assert seen(events).count("turn.ended") == 1
        assert events[-1]["data"]["status"] == session["status"]


@pytest.mark.case("C071")
@pytest.mark.req("API-8")
async def test_before_anybody_runs_it(stacks: Stacks) -> None:
    """Without a worker the request is kept, and takes effect when there is one."""
    async with stacks.open(lease_s=2) as stack:
        client = stack.client(await stack.start("api"))
        session_id = await client.create("model")
        answer = await client.http.post(f"/v1/sessions/{session_id}/cancel")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/no-worker")
        await stack.start("worker")
        assert (await client.settled(session_id))["status"] == "cancelled"
        assert (await client.cancel(session_id))["status"] == "cancelled"


async def _is_cancelled(scene: Scene, session: Json) -> None:
    assert (session["status"], session["stop_reason"]) == ("cancelled", "cancelled")
    events = await scene.client.events(session["id"])
    assert seen(events).count("turn.ended") == 1
    assert (events[-1]["type"], events[-1]["data"]["status"]) == ("turn.ended", "cancelled")
    opened = [e["data"]["call_id"] for e in events if e["type"] == "tool.intended"]
    closed = [e["data"]["call_id"] for e in events if e["type"] == "tool.finished"]
    assert opened == closed


@pytest.mark.slow
@pytest.mark.case("C070")
@pytest.mark.req("API-8")
async def test_cancel_against_the_answer(stacks: Stacks) -> None:
    """A hundred races; what varies is how many turns of the loop the one has before the other."""
    async with serving(stacks) as scene:
        chance = random.Random(7)
        endings = Counter[str]()
        aim = 0
        for number in range(TRIES):
            kind = "text" if number % 2 else "model"
            ending = await _race(scene, f"{kind} {number}", aim + chance.randrange(-40, 40))
            endings[ending] += 1
            # What has won by far gives the other a start: how far is for the machine to say.
            aim += 10 if ending == "completed" else -10
        assert set(endings) == {"completed", "cancelled"}, endings


async def _race(scene: Scene, task: str, lead: int) -> str:
    session_id = await scene.client.create(task)
    hold = await scene.holds.reached(task)

    async def answer() -> None:
        await _turns(lead)
        hold.release()

    async def cancel() -> Json:
        await _turns(-lead)
        return await scene.client.cancel(session_id)

    async with asyncio.TaskGroup() as group:
        group.create_task(answer())
        asked = group.create_task(cancel())
    told = asked.result()
    events = await scene.client.events(session_id)
    called = len(scene.tools.received)  # by now with what was under way when it was cancelled
    assert told["status"] in {"completed", "cancelled"}
    assert seen(events).count("turn.ended") == 1
    assert events[-1]["data"]["status"] == told["status"]
    assert await scene.client.session(session_id) == told
    assert len(scene.tools.received) == called
    return str(told["status"])


async def _turns(count: int) -> None:
    """Let the loop turn so often, as the sockets in between do too."""
    for _ in range(count):
        await asyncio.sleep(0)
