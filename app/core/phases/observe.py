"""OBSERVE: what is known is in the history; is the next answer affordable?"""

from app.core import guards
from app.core.context import next_input
from app.core.draft import Draft
from app.core.events import Purpose
from app.core.lifecycle import Phase, StopReason
from app.core.messages import sequence_fault
from app.core.phases.ending import end, request, stop
from app.core.state import State


def go_on(draft: Draft) -> None:
    """Enter OBSERVE and, within the limits, ask the model for the next step."""
    draft.move(Phase.OBSERVE)
    consider(draft)


def consider(draft: Draft) -> None:
    """Ask the model for the next step, unless a guard forbids it."""
    state = draft.state
    fault = sequence_fault(state.history)
    if fault is not None:
        end(draft, StopReason.UNRECOVERABLE_ERROR, error=fault)
        return
    stopped = forbidden(state, next_input(state, Purpose.STEP))
    if stopped is not None:
        stop(draft, *stopped)
    else:
        request(draft, Purpose.STEP)


def forbidden(state: State, size: int) -> tuple[StopReason, str] | None:
    """Return which guard forbids a further step with a request of this size, or None."""
    limits, spent = state.limits, state.spent
    if state.step >= limits.max_steps:
        return StopReason.MAX_STEPS, guards.steps_used(limits)
    if not guards.fits_window(state.model, size):
        window = state.model.context_window
        detail = f"the next request needs {size} tokens of a window of {window}"
        return StopReason.CONTEXT_OVERFLOW, detail
    if not guards.affordable(limits, spent, size):
        detail = f"{spent.tokens} of {limits.token_budget} tokens are spent and {size} more needed"
        return StopReason.TOKEN_BUDGET, detail
    if not guards.within_cost(limits, state.model, spent, size):
        return StopReason.MAX_COST, f"{spent.cost:.6f} of {limits.max_cost} is spent"
    return None
