"""A session on the pure machine: say what comes in, look at what was decided.

`Machine.give` checks on every input what must hold whatever the test is about.
"""

from dataclasses import dataclass, replace
from typing import Final

from app.core.canonical import Json, action_digest, digest
from app.core.effects import CallModel, CallTool, CheckStatus, PrepareTurn
from app.core.events import (
    Body,
    CallMade,
    Choice,
    Event,
    Finish,
    Limits,
    ModelAnswered,
    ModelRef,
    PhaseEntered,
    Policy,
    PromptRef,
    SessionCreated,
    ToolFinished,
    ToolRef,
    Trace,
    TurnEnded,
    TurnStarted,
    Usage,
)
from app.core.evolve import evolve, fold, place
from app.core.faults import Fault, FaultKind
from app.core.ids import call_id
from app.core.inputs import (
    ApprovalGiven,
    CancelAsked,
    Claimed,
    ClientAnswered,
    CloseAsked,
    Input,
    ModelFaulted,
    ModelReturned,
    ResumeAsked,
    StatusChecked,
    TimerRang,
    Told,
    ToolFaulted,
    ToolReturned,
    TurnPrepared,
    Verified,
)
from app.core.machine import decide
from app.core.plan import owed
from app.core.state import OpenCall, State
from tests.core.calls import IDEMPOTENT, ONCE, READ, bad_call, call
from tests.core.invariants import check_history, check_owed

SECOND: Final = 1_000_000
TRACE: Final = Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
MODEL: Final = ModelRef("m")
TOOLS: Final = ("echo", "search", "boom", "pay")

__all__ = [
    "IDEMPOTENT",
    "MODEL",
    "ONCE",
    "READ",
    "SECOND",
    "TOOLS",
    "TRACE",
    "Machine",
    "bad_call",
    "begun",
    "call",
    "error",
    "refolded",
    "shape",
]


@dataclass(frozen=True, slots=True)
class Known:
    """The session before its first claim, as the API writes it."""

    events: tuple[Event, ...]
    state: State


def begun(
    limits: Limits | None = None, model: ModelRef = MODEL, task: str = "hi", at_us: int = SECOND
) -> Known:
    """Return the first two events and their fold."""
    prompt = PromptRef("default", 1, "abc", 100)
    bodies: tuple[Body, ...] = (
        SessionCreated("ses_1", "default", 1, "react", model, prompt, limits or Limits()),
        TurnStarted(task, 5, TRACE, tuple(ToolRef(name, 1) for name in TOOLS), 50),
    )
    events: tuple[Event, ...] = ()
    state: State | None = None
    for body in bodies:
        event = place(state, body, at_us)
        state = evolve(state, event)
        events = (*events, event)
    assert state is not None
    return Known(events, state)


class Machine:
    """A scripted session. `now_us` moves only where a test says so."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        model: ModelRef = MODEL,
        task: str = "hi",
        claimed: bool = True,
    ) -> None:
        known = begun(limits, model, task)
        self.events: list[Event] = list(known.events)
        self.state = known.state
        self.now_us = SECOND
        if claimed:
            self.claim()

    def give(self, given: Input) -> tuple[Body, ...]:
        """Decide upon an input and return the bodies that were decided."""
        before = self.state
        decision = decide(before, given)
        state: State | None = before
        for event in decision.events:
            check_history(state := evolve(state, event), event)
        assert state == decision.state
        assert all(event.at_us >= max(given.at_us, before.at_us) for event in decision.events)
        self.events.extend(decision.events)
        self.state = decision.state
        check_owed(self.state)
        return tuple(event.body for event in decision.events)

    def claim(self, epoch: int = 1, lease_s: float = 15.0) -> tuple[Body, ...]:
        return self.give(Claimed(self.now_us, "wrk_1", epoch, int(lease_s * SECOND)))

    def answer(
        self,
        *calls: CallMade,
        text: str = "",
        finish: Finish | None = None,
        usage: Usage | None = None,
    ) -> tuple[Body, ...]:
        """Answer the model call that is owed."""
        effect = self.owes_model()
        ids = [call_id(self.state.turn, self.state.step, i) for i in range(1, len(calls) + 1)]
        made = tuple(
            replace(c, call_id=i, wire_id=f"w_{i}") for i, c in zip(ids, calls, strict=True)
        )
        spent = usage or Usage(self.state.context_tokens, 10, model_calls=1, estimated=True)
        answer = ModelAnswered(text, made, spent, "stop", 10, finish=finish)
        return self.give(ModelReturned(self.now_us, effect.key, answer))

    def model_fails(
        self, fault: Fault, *, usage: Usage | None = None, jitter: float = 0.0
    ) -> tuple[Body, ...]:
        key = self.owes_model().key
        return self.give(ModelFaulted(self.now_us, key, fault, jitter, usage or Usage()))

    def ok(self, which: str, output: Json = "fine", *, notable: bool = False) -> tuple[Body, ...]:
        """Let a tool call in flight succeed; `which` is its id, or its name."""
        effect = self.owes_tool(which)
        return self.give(
            ToolReturned(
                self.now_us,
                effect.key,
                effect.call.call_id,
                output,
                None,
                8,
                digest(output),
                2.0,
                empty=output in ("", None, [], {}),
                notable=notable,
            )
        )

    def fail(
        self, which: str, kind: FaultKind = FaultKind.CONFLICT, *, sent: bool = True
    ) -> tuple[Body, ...]:
        """Let a tool call in flight fail."""
        effect = self.owes_tool(which)
        fault = Fault.of(kind, f"it {kind.value}", sent=sent)
        which = effect.call.call_id
        return self.give(ToolFaulted(self.now_us, effect.key, which, fault, 20, 2.0, 0.0))

    def step_ok(
        self, *calls: CallMade, output: Json = "fine", notable: bool = False
    ) -> tuple[Body, ...]:
        """Answer with calls and let whatever is sent succeed; return the last that was decided."""
        decided = self.answer(*calls)
        while tools := [e for e in owed(self.state) if isinstance(e, CallTool)]:
            decided = (*decided, *self.ok(tools[0].call.call_id, output, notable=notable))
        return decided

    def prepare(self) -> tuple[Body, ...]:
        """Answer the preparation of a turn that is owed."""
        (effect,) = owed(self.state)
        assert isinstance(effect, PrepareTurn)
        refs = tuple(ToolRef(name, 2) for name in TOOLS)
        trace = Trace("11" * 16, "22" * 8, sampled=False)
        return self.give(TurnPrepared(self.now_us, trace, refs, 60, "Go on.", 3))

    def tell(self, text: str = "more", policy: Policy = Policy.ENQUEUE) -> tuple[Body, ...]:
        return self.give(Told(self.now_us, text, 4, policy))

    def resume(self, limits: Limits | None = None) -> tuple[Body, ...]:
        return self.give(ResumeAsked(self.now_us, limits))

    def cancel(self) -> tuple[Body, ...]:
        return self.give(CancelAsked(self.now_us))

    def close(self) -> tuple[Body, ...]:
        return self.give(CloseAsked(self.now_us))

    def ring(self, timer: str) -> tuple[Body, ...]:
        return self.give(TimerRang(self.now_us, timer))

    def verify(self, which: str, *, happened: bool, output: Json = None) -> tuple[Body, ...]:
        return self.give(Verified(self.now_us, which, happened, output, 5))

    def approve(
        self,
        which: str,
        arguments: dict[str, object] | None = None,
        *,
        decision: Choice = Choice.APPROVE,
        message: str | None = None,
    ) -> tuple[Body, ...]:
        """Decide on a call that is asked about; changed arguments come hashed by the shell."""
        asked = self.open(which)
        assert asked.approval is not None
        return self.give(
            ApprovalGiven(
                self.now_us,
                asked.approval.approval_id,
                decision,
                message,
                arguments,
                digest="" if arguments is None else action_digest(asked.call.name, arguments),
                loop_digest="" if arguments is None else action_digest(asked.call.name, arguments),
                note=None if arguments is None else "A person changed the arguments.",
                note_tokens=0 if arguments is None else 6,
                by="key_1",
            )
        )

    def deny(self, which: str, message: str | None = None) -> tuple[Body, ...]:
        return self.approve(which, decision=Choice.DENY, message=message)

    def caller(
        self, which: str, output: Json = "done there", error: str | None = None
    ) -> tuple[Body, ...]:
        """Let the caller say what came of a call which is its own."""
        call_id = self.open(which).call.call_id
        return self.give(
            ClientAnswered(self.now_us, call_id, output, error, 7, digest(output), empty=not output)
        )

    def check(
        self, which: str, *, happened: bool | None, output: Json = None, fault: Fault | None = None
    ) -> tuple[Body, ...]:
        """Answer the question to the tool what became of a call."""
        effect = self.owes_check(which)
        which = effect.call.call_id
        return self.give(
            StatusChecked(self.now_us, effect.key, which, happened, output, 5, fault, 0.0)
        )

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)

    def owes_model(self) -> CallModel:
        (effect,) = owed(self.state)
        assert isinstance(effect, CallModel), effect
        return effect

    def owes_tool(self, which: str) -> CallTool:
        found = [
            e
            for e in owed(self.state)
            if isinstance(e, CallTool) and which in {e.call.call_id, e.call.name}
        ]
        assert found, (which, owed(self.state))
        return found[0]

    def owes_check(self, which: str) -> CheckStatus:
        found = [
            e
            for e in owed(self.state)
            if isinstance(e, CheckStatus) and which in {e.call.call_id, e.call.name}
        ]
        assert found, (which, owed(self.state))
        return found[0]

    def open(self, which: str) -> OpenCall:
        """Return a call of the step by its id, or the first of this name that is not over."""
        found = [
            c
            for c in self.state.calls
            if which == c.call.call_id or (which == c.call.name and c.result is None)
        ]
        assert found, (which, self.state.calls)
        return found[0]

    def running(self) -> list[str]:
        """Return the ids of the tool calls in flight."""
        return [e.call.call_id for e in owed(self.state) if isinstance(e, CallTool)]

    def results(self) -> list[ToolFinished]:
        return [e.body for e in self.events if isinstance(e.body, ToolFinished)]

    def ends(self) -> list[TurnEnded]:
        return [e.body for e in self.events if isinstance(e.body, TurnEnded)]

    @property
    def end(self) -> TurnEnded:
        assert self.state.ended is not None
        return self.ends()[-1]


def error(result: ToolFinished) -> Fault:
    """Return the fault with which a call was closed."""
    assert result.error is not None
    return result.error


def shape(events: list[Event]) -> list[str]:
    """Return the events as one word each; phases as `A→B`."""
    return [
        f"{e.body.source}→{e.body.target}" if isinstance(e.body, PhaseEntered) else e.body.TYPE
        for e in events
    ]


def refolded(machine: Machine) -> State:
    """Return the state which the journal alone gives."""
    state = fold(machine.events)
    assert state is not None
    return state
