"""What holds after every event and every decision, whatever a test is about."""

from itertools import pairwise

from app.core.context import assemble
from app.core.effects import CallTool
from app.core.events import Event, ModelRequested, TurnEnded
from app.core.lifecycle import PendingKind, Phase
from app.core.messages import AssistantMessage, sequence_fault
from app.core.plan import owed, resting
from app.core.state import CallStage, State


def check_history(state: State, event: Event) -> None:
    """A history that is sent, and one that is left behind, is one that a provider takes.

    In between only the results of the step's calls are missing, and nothing stands after them.
    """
    if state.calls:
        last = state.history[-1]
        assert isinstance(last, AssistantMessage)
        assert [c.call_id for c in last.calls] == [c.call.call_id for c in state.calls]
        assert sequence_fault(state.history[:-1]) is None
    else:
        assert sequence_fault(state.history) is None
    if isinstance(event.body, ModelRequested):
        sent = assemble(state, event.body.purpose)
        assert sequence_fault(sent) is None
        roles = [type(m).__name__ for m in sent if type(m).__name__ != "ToolMessage"]
        assert all(a == "AssistantMessage" or a != b for a, b in pairwise(roles))
        assert all(m.calls or m.text.strip() for m in sent if isinstance(m, AssistantMessage))
    if isinstance(event.body, TurnEnded):
        assert sequence_fault(state.history) is None
        assert state.calls == ()


def check_owed(state: State) -> None:
    """A session always owes something or rests; never two effects of one key, none in doubt."""
    effects = owed(state)
    assert len({e.key for e in effects}) == len(effects)
    doubtful = {c.call.call_id for c in state.calls if c.in_doubt}
    assert not [e for e in effects if isinstance(e, CallTool) and e.call.call_id in doubtful]
    assert (resting(state) is None) == bool(effects)
    if state.phase is Phase.WAITING and state.ended is None:
        _check_waiting(state)
    else:
        assert state.pending is None


def _check_waiting(state: State) -> None:
    """Who waits says what for; somebody can give it, and an approval that nobody gives lapses."""
    asked = {
        PendingKind.VERIFICATION: [c for c in state.calls if c.in_doubt],
        PendingKind.APPROVAL: [c for c in state.calls if c.unapproved],
        PendingKind.CLIENT_TOOLS: [c for c in state.calls if c.with_client],
    }
    kind = next(kind for kind, calls in asked.items() if calls)
    assert state.pending is not None
    assert (state.pending.kind, state.pending.calls) == (
        kind,
        tuple(c.call.call_id for c in asked[kind]),
    )
    rest = resting(state)
    assert rest is not None
    assert (rest.timer_us is not None) == bool(asked[PendingKind.APPROVAL])
    assert state.active_from_us is None
    sent = [c for c in state.calls if c.stage is CallStage.INTENDED]
    assert all(c.call.client or c.in_doubt for c in sent)
