"""A decision in the making: bodies are placed and folded one by one, so later ones see earlier."""

from app.core.events import Body, Event, PhaseEntered
from app.core.evolve import evolve, place
from app.core.lifecycle import TRANSITIONS, Phase
from app.core.state import State


class IllegalTransitionError(Exception):
    """A move or an input which the table does not allow in this phase."""


class Draft:
    """The events of one decision and the state they lead to. Lives within one `decide`."""

    def __init__(self, state: State, at_us: int) -> None:
        """Start from a state; every event of this decision happens at `at_us`, never earlier."""
        self.state = state
        self.at_us = max(at_us, state.at_us)
        self.events: list[Event] = []

    def emit(self, body: Body) -> None:
        """Add an event and fold it."""
        event = place(self.state, body, self.at_us)
        self.state = evolve(self.state, event)
        self.events.append(event)

    def move(self, target: Phase) -> None:
        """Enter a phase.

        Raises:
            IllegalTransitionError: when the table has no such arrow.

        """
        source = self.state.phase
        if target not in TRANSITIONS[source]:
            message = f"There is no transition from {source} to {target}."
            raise IllegalTransitionError(message)
        self.emit(PhaseEntered(source, target))
