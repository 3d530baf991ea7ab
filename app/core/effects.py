"""What the machine wants done in the world. An effect is data; `runtime.perform` carries it out.

Effects are owed, not remembered: `plan.owed(state)` derives them from the folded log, so a
successor after a crash finds the same ones. `key` tells two of them apart.
"""

from dataclasses import dataclass

from app.core.events import CallMade, Purpose


@dataclass(frozen=True, slots=True)
class CallModel:
    """Buy one answer to the state. `not_before_us` is the earliest time of this attempt."""

    key: str
    purpose: Purpose
    attempt: int
    not_before_us: int


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run one tool call; its intent is durable already (at `intended_seq` of the journal)."""

    key: str
    call: CallMade
    attempt: int
    not_before_us: int
    intended_seq: int


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """Ask the tool whether an uncertain call took effect; changes nothing in the world."""

    key: str
    call: CallMade
    attempt: int
    not_before_us: int


@dataclass(frozen=True, slots=True)
class PrepareTurn:
    """Mint the trace of the next turn and freeze the tools it may use."""

    key: str


Effect = CallModel | CallTool | CheckStatus | PrepareTurn
