"""REFLECT: the step is over; does the turn go on?

The order of precedence is LOOP-16's: a withdrawn tool is told first, then the errors running,
then loops, then the number of steps.
"""

from app.core import guards
from app.core.draft import Draft
from app.core.events import GuardTripped, Outcome, StepFinished
from app.core.lifecycle import Phase, StopReason
from app.core.phases.ending import stop
from app.core.phases.observe import go_on

_NOTE_TOKENS = 40


def after_calls(draft: Draft, stopped: tuple[StopReason, str] | None = None) -> None:
    """Enter REFLECT after the calls of a step, and stop or go on."""
    results = [c.result for c in draft.state.calls if c.result is not None]
    succeeded = sum(1 for r in results if r.outcome is Outcome.OK)
    draft.move(Phase.REFLECT)
    draft.emit(StepFinished(len(results), succeeded, draft.state.spent.tokens))
    if stopped is None:
        _withdraw_failing(draft, len(results))
        state = draft.state
        stopped = guards.stop_after_step(
            state.limits,
            step=state.step,
            errors_running=state.errors_running,
            loop=guards.looping(state.actions, state.limits, len(results)),
        )
    if stopped is not None:
        stop(draft, *stopped)
    else:
        go_on(draft)


def _withdraw_failing(draft: Draft, fresh: int) -> None:
    for tool in guards.failing_tools(draft.state.actions, fresh):
        if tool not in draft.state.withdrawn:
            _withdraw(draft, tool)


def _withdraw(draft: Draft, tool: str) -> None:
    note = (
        f"The tool {tool} failed or returned nothing twice running and is withdrawn for this turn. "
        "Change your strategy: use another tool, or answer with what you know."
    )
    detail = f"{tool} failed or returned nothing twice running"
    draft.emit(
        GuardTripped("tool_withdrawn", detail, note=note, note_tokens=_NOTE_TOKENS, tool=tool)
    )
