"""OBSERVE: what is known is in the history; is the next answer affordable?"""

from app.core import guards
from app.core.context import next_input
from app.core.draft import Draft
from app.core.events import Purpose
from app.core.lifecycle import Phase, StopReason
from app.core.messages import sequence_fault
from app.core.phases.ending import end, request, stop


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
    size = next_input(state, Purpose.STEP)
    limits, spent = state.limits, state.spent
    if state.step >= limits.max_steps:
        stop(draft, StopReason.MAX_STEPS, guards.steps_used(limits))
    elif not guards.fits_window(state.model, size):
        detail = f"the next request needs {size} tokens of a window of {state.model.context_window}"
        stop(draft, StopReason.CONTEXT_OVERFLOW, detail)
    elif not guards.affordable(limits, spent, size):
        detail = f"{spent.tokens} of {limits.token_budget} tokens are spent and {size} more needed"
        stop(draft, StopReason.TOKEN_BUDGET, detail)
    elif not guards.within_cost(limits, state.model, spent, size):
        detail = f"{spent.cost:.6f} of {limits.max_cost} is spent"
        stop(draft, StopReason.MAX_COST, detail)
    else:
        request(draft, Purpose.STEP)
