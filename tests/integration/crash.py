"""One crash and what becomes of it: a weather run that is struck at a point, then taken over.

The owner is a worker which SIGSTOPs itself at the point. While it stands still the test looks at
the journal and at what the model and the tools have seen; then the worker and its API process get
SIGKILL, and a process that was started meanwhile takes over.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from tests.integration.client import Client, Json, Reader
from tests.integration.process import Process
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, args, calls, tc
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far, weather
from tests.scripted.tools import ScriptedTools
from tests.waiting import until

TASK = "Is rain coming? Then remind me of the umbrella."
TOOLS = ["get_weather", "create_reminder"]
TOOL_TIMEOUT_S = 2.0
AT_ONCE: Final = 6
"""How many cases run beside each other: each has three processes with a few connections."""


@dataclass(frozen=True, slots=True)
class Case:
    """Where the owner is struck, how the session goes on, and what a person says if asked.

    A point is one of `tests.integration.killable`, or `sent:TOOL` (the call has reached the
    server, which has done nothing yet), `done:TOOL` (the effect is there, its answer is not).
    """

    point: str
    by: str = "takeover"
    says: str = "happened"

    @override
    def __str__(self) -> str:
        """Name the case."""
        extra = [word for word in (self.by, self.says) if word not in {"takeover", "happened"}]
        return "-".join([self.point, *extra])


@dataclass(slots=True)
class Seen:
    """What the outside had seen, and the journal held, at some moment."""

    events: list[Json] = field(default_factory=list)
    asked: int = 0
    deliveries: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str, **data: object) -> int:
        """Return how many events of a type there are, with this data."""
        return sum(e["type"] == kind and data.items() <= e["data"].items() for e in self.events)


@dataclass(slots=True)
class Outcome:
    """Everything that a case left behind."""

    case: Case
    before: Seen
    after: Seen
    session: Json
    pending: Json | None
    reader: Reader
    effects: int
    keys: dict[str, set[str]]
    said: set[int]
    """How often the model was told the task, over all requests."""


async def run(stacks: Stacks, case: Case, without: Iterable[str] = ()) -> Outcome:
    """Run a case, with some mechanisms taken out of the successor."""
    async with AsyncExitStack() as held:
        model = await held.enter_async_context(ScriptedModel(careful))
        tools = await held.enter_async_context(ScriptedTools())
        stack = await held.enter_async_context(
            stacks.open(model=model.base_url, env={"SUREFOOT_TOOL_TIMEOUT_S": str(TOOL_TIMEOUT_S)})
        )
        return await _Run(stack, model, tools, case, tuple(without)).run()


def careful(request: Body, n: int) -> Answer:
    """Follow the weather script; make a reminder again that is said not to have been made."""
    results = results_so_far(request)
    if results and "did not happen" in results[-1]:
        arguments = args(title="Weather", time="07:00", text="Take an umbrella")
        return calls(tc("call_again", "create_reminder", arguments))
    return weather(request, n)


class _Run:
    def __init__(
        self,
        stack: Stack,
        model: ScriptedModel,
        tools: ScriptedTools,
        case: Case,
        without: tuple[str, ...],
    ) -> None:
        self._stack, self._model, self._tools, self._case = stack, model, tools, case
        self._without = without
        self._urls: list[str] = []

    async def run(self) -> Outcome:
        api, owner = await self._start()
        client = self._stack.client(api)
        await client.register(*self._tools.specs()[:2])
        self._urls = [api.url]
        session_id = await client.create(TASK, tools=TOOLS)
        reader = Reader(session_id, lambda: self._urls)
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.run(timeout_s=90))
            await self._struck(owner)
            before = await self._look(client, session_id)
            second = await self._go_on(api, owner, session_id)
            session = await second.settled(session_id)
            pending = session["pending"]
            if pending is not None:
                for call in pending["calls"]:
                    await second.verify(session_id, call["call_id"], self._case.says)
                session = await second.settled(session_id)
        after = await self._look(second, session_id)
        return Outcome(
            case=self._case,
            before=before,
            after=after,
            session=session,
            pending=pending,
            reader=reader,
            effects=len(self._tools.effects),
            keys=self._keys(),
            said={sum(m["content"] == TASK for m in b["messages"]) for b in self._model.bodies},
        )

    async def _start(self) -> tuple[Process, Process]:
        point = self._case.point
        where, _, tool = point.partition(":")
        if where in {"sent", "done"}:
            hold = self._tools.hold_before if where == "sent" else self._tools.hold_after
            hold(tool)
            return await self._stack.start("api"), await self._stack.start("worker")
        owner = await self._stack.start("worker", point=point, action="stop")
        return await self._stack.start("api"), owner

    async def _struck(self, owner: Process) -> None:
        where, _, tool = self._case.point.partition(":")
        if where in {"sent", "done"}:
            held = self._tools.hold_before if where == "sent" else self._tools.hold_after
            async with asyncio.timeout(60):
                await held(tool).reached()
            owner.freeze()
        await until(lambda: owner.frozen, timeout_s=60, what=f"stopped at {self._case.point}")

    async def _go_on(self, api: Process, owner: Process, session_id: str) -> Client:
        """Kill both processes and let another one continue; return its client."""
        by_hand = self._case.by == "resume"
        second = await self._stack.start("api" if by_hand else "all", without=self._without)
        owner.kill()
        api.kill()
        await api.wait()
        await owner.wait()
        for tool in TOOLS:
            if self._case.point.endswith(f":{tool}"):
                self._tools.hold_before(tool).release()
                self._tools.hold_after(tool).release()
        self._urls = [second.url]
        client = self._stack.client(second)
        if by_hand:
            await self._resume(client, owner, session_id)
        return client

    async def _resume(self, client: Client, owner: Process, session_id: str) -> None:
        """Resume by hand: refused while the owner's lease holds, accepted once it is over."""
        path = f"/v1/sessions/{session_id}/resume"
        early = await client.http.post(path)
        held = await self._stack.rows("select 1 from workers where lease_until > now()")
        assert early.status_code == 409 or not held
        await self._stack.lease_over(owner)
        answer = await client.post(path, expect=202)
        assert answer["status"] in {"running", "queued"}
        due = await self._stack.rows("select wake_at <= now() as due from sessions")
        assert due[0]["due"]
        await self._stack.start("worker")

    async def _look(self, client: Client, session_id: str) -> Seen:
        return Seen(
            events=await client.events(session_id),
            asked=self._model.count,
            deliveries=Counter(d.tool for d in self._tools.received),
        )

    def _keys(self) -> dict[str, set[str]]:
        return {t: {d.key for d in self._tools.received if d.tool == t} for t in TOOLS}
