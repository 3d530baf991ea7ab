"""What holds after every event and every decision, whatever a test is about."""

from itertools import pairwise

from app.core.context import assemble
from app.core.effects import CallTool
from app.core.events import Event, ModelRequested, TurnEnded
from app.core.messages import AssistantMessage, sequence_fault
from app.core.plan import owed, resting
from app.core.state import State


def check_history(state: State, event: Event) -> None:
    """A history that is sent, and one that is left behind, is one that a provider takes."""
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
