"""Drives the real machine through turns and keeps each commit, as a worker would make it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core.events import (
    CallMade,
    EffectClass,
    Event,
    Limits,
    ModelAnswered,
    ModelRef,
    PromptRef,
    SessionCreated,
    Trace,
    TurnStarted,
    Usage,
)
from app.core.evolve import evolve, place
from app.core.faults import Fault, FaultKind
from app.core.ids import call_id
from app.core.inputs import Claimed, Input, ModelFaulted, ModelReturned, ToolFaulted, ToolReturned
from app.core.machine import decide
from app.core.plan import owed
from app.core.state import State

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
ROOT_ID = "b7ad6b7169203331"
START_US = 1_790_000_000_000_000
SSN = "SSN 000-00-0000"


@dataclass(frozen=True, slots=True)
class Commit:
    """One durable append."""

    before: State | None
    events: tuple[Event, ...]
    after: State


def made(index: int, name: str, step: int, turn: int = 1, **changes: object) -> CallMade:
    """One call, as the shell would hand it to the core."""
    own = call_id(turn, step, index)
    call = CallMade(
        call_id=own,
        wire_id=own,
        name=name,
        raw="{}",
        arguments={"q": f"{SSN} {step} {index}"},
        digest=f"{name}{step}{index}",
        loop_digest=f"{name}{step}{index}",
        version=1,
        effect=EffectClass.READ,
    )
    return replace(call, **changes)  # type: ignore[arg-type] # a test's own keywords


class Journey:
    """A session, its clock, and everything that was committed."""

    def __init__(
        self, *, sampled: bool = True, link: str | None = None, limits: Limits | None = None
    ) -> None:
        """Write what the API writes when a session is created."""
        self.now_us = START_US
        self.commits: list[Commit] = []
        created = SessionCreated(
            session_id="ses_1",
            agent="default",
            agent_version=3,
            mode="react",
            model=ModelRef("gpt-x", price_input=1.0, price_output=2.0),
            prompt=PromptRef("default", 1, "ab" * 32, 200),
            limits=limits or Limits(),
        )
        first = place(None, created, self.now_us)
        state = evolve(None, first)
        started = TurnStarted(
            f"What costs it? {SSN}", 8, Trace(TRACE_ID, ROOT_ID, sampled), link=link
        )
        second = place(state, started, self.now_us)
        self.state = evolve(state, second)
        self._commit(None, (first, second))
        self.claim("wrk_1", 1)

    def _commit(self, before: State | None, events: tuple[Event, ...]) -> None:
        self.commits.append(Commit(before, events, self.state))

    def give(self, given: Input) -> Sequence[Event]:
        """Decide on one input and commit what came of it."""
        before = self.state
        decision = decide(before, given)
        self.state = decision.state
        if decision.events:
            self._commit(before, decision.events)
        return decision.events

    def tick(self, ms: int = 10) -> int:
        """Let time pass."""
        self.now_us += ms * 1000
        return self.now_us

    def claim(self, worker: str, epoch: int) -> None:
        """Let a worker take the session over."""
        self.give(Claimed(self.tick(), worker, epoch, 15_000_000))

    @property
    def keys(self) -> list[str]:
        """The effects that are owed."""
        return [effect.key for effect in owed(self.state)]

    def answer(self, text: str = "", calls: Sequence[CallMade] = ()) -> None:
        """The model answers."""
        usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, model_calls=1)
        answer = ModelAnswered(text, tuple(calls), usage, "stop", 20, model="gpt-x-2026")
        self.give(ModelReturned(self.tick(300), self.keys[0], answer))

    def model_fails(self, kind: FaultKind = FaultKind.UNAVAILABLE) -> None:
        """An attempt at the model call fails."""
        fault = Fault.of(kind, f"upstream busy {SSN} sk-canary-1")
        self.give(ModelFaulted(self.tick(100), self.keys[0], fault, 0.5))

    def result(self, call: CallMade, output: object = None) -> None:
        """A tool returns."""
        key = next(k for k in self.keys if f":{call.call_id}:" in k)
        value = output or {"price": 10, "note": f"{SSN} {call.call_id}"}
        done = ToolReturned(
            self.tick(50), key, call.call_id, value, None, 12, call.call_id, duration_ms=50.0
        )
        self.give(done)

    def tool_fails(self, call: CallMade, kind: FaultKind = FaultKind.UNAVAILABLE) -> None:
        """An attempt at a tool call fails."""
        key = next(k for k in self.keys if f":{call.call_id}:" in k)
        fault = Fault.of(kind, f"boom {SSN} sk-canary-1")
        self.give(ToolFaulted(self.tick(50), key, call.call_id, fault, 9, 50.0, 0.5))


def shop_price() -> Journey:
    """One tool call, then the answer: 11 spans."""
    journey = Journey()
    call = made(0, "get_price", 1)
    journey.answer(calls=[call])
    journey.result(call)
    journey.answer("It costs 10 euros.")
    return journey


def five_and_four() -> Journey:
    """Five model calls and four tool calls, the session that the cost budget is made for."""
    journey = Journey()
    for step in range(1, 5):
        call = made(0, f"tool_{step}", step)
        journey.answer(calls=[call])
        journey.result(call)
    journey.answer("Done.")
    return journey
