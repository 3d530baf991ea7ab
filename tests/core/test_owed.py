"""What a session owes, to the last field: the shell sends exactly that."""

from app.core.effects import CallModel, CallTool, CheckStatus, PrepareTurn
from app.core.events import Purpose
from app.core.faults import FaultKind
from app.core.plan import owed
from tests.core.machine_kit import ONCE, SECOND, Machine, call


def test_a_model_call_and_its_next_attempt() -> None:
    session = Machine()
    request = session.state.seq
    assert owed(session.state) == (CallModel(f"model:{request}:1", Purpose.STEP, 1, 0),)
