"""The guards: pure functions from what is known to a verdict. None of them acts.

Sources: LOOP-3 to LOOP-9 and LOOP-15 of docs/requirements.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.core.events import EffectClass, Limits, ModelRef, Outcome, Usage
from app.core.lifecycle import StopReason
from app.core.state import Action

ANSWER_RESERVE: Final = 4096
_SMALL_BUDGET_SHARE: Final = 8
_SHORTEST_ANSWER: Final = 64
_REPEATS_BEFORE_WITHDRAWAL: Final = 2
_PERIODS: Final = (2, 3)


def reserve(budget: int) -> int:
    """Return the tokens kept for an answer: 4,096, or an eighth of a budget that is small."""
    return min(ANSWER_RESERVE, budget // _SMALL_BUDGET_SHARE)


def affordable(limits: Limits, spent: Usage, next_input: int) -> bool:
    """Return whether a call of this size fits the token budget, its answer counted (LOOP-4).

    The first call of a turn is always bought: a smaller budget could never do anything.
    """
    if spent.model_calls == 0:
        return True
    return spent.tokens + next_input + reserve(limits.token_budget) <= limits.token_budget


def closing_affordable(limits: Limits, spent: Usage, next_input: int) -> bool:
    """Return whether the reserve still buys one short closing answer (API-9)."""
    return spent.tokens + next_input + _SHORTEST_ANSWER <= limits.token_budget


def fits_window(model: ModelRef, next_input: int) -> bool:
    """Return whether a request of this size leaves room for an answer in the model's window."""
    return next_input + reserve(model.context_window) <= model.context_window


def cost_of(model: ModelRef, usage: Usage) -> float:
    """Return what a call costs by the model's price table; 0 without one."""
    if model.price_input is None or model.price_output is None:
        return 0.0
    cached = model.price_input if model.price_cached is None else model.price_cached
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    total = fresh * model.price_input + usage.cached_tokens * cached
    return (total + usage.output_tokens * model.price_output) / 1_000_000


def within_cost(limits: Limits, model: ModelRef, spent: Usage, next_input: int) -> bool:
    """Return whether the next call's input still fits the money ceiling, where there is one."""
    if limits.max_cost is None:
        return True
    return spent.cost + cost_of(model, Usage(input_tokens=next_input)) <= limits.max_cost


class Repeat(StrEnum):
    """What LOOP-7 and TOOL-10 say of a proposed call."""

    FRESH = "fresh"
    SAME_ACTION = "same_action"
    THIRD_ACTION = "third_action"
    SAME_RESULT = "same_result"
    THIRD_RESULT = "third_result"
    ONCE_DONE = "once_done"
    ONCE_UNKNOWN = "once_unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling on a proposed call, with the earlier action whose result it is given instead."""

    repeat: Repeat
    earlier: Action | None = None


def judge_call(
    *,
    tool: str,
    digest: str,
    effect: EffectClass,
    polling: bool,
    max_repeat: int,
    actions: Sequence[Action],
    once_done: Sequence[Action],
) -> Verdict:
    """Rule on a call before it runs; `actions` are those of the turn, oldest first."""
    done = _same_once(digest, once_done) if effect is EffectClass.ONCE else None
    if done is not None and done.outcome is Outcome.UNKNOWN:
        return Verdict(Repeat.ONCE_UNKNOWN)
    verdict = Verdict(Repeat.FRESH)
    if not polling:
        verdict = _judge_running(tool, digest, max_repeat, actions)
    if verdict.repeat is Repeat.FRESH and done is not None:
        return Verdict(Repeat.ONCE_DONE, done)
    return verdict


def _same_once(digest: str, once_done: Sequence[Action]) -> Action | None:
    """Return the `once` call of the turn with this action that happened or may have."""
    happened = {Outcome.OK, Outcome.UNKNOWN}
    same = [a for a in once_done if a.digest == digest and a.outcome in happened]
    return same[-1] if same else None


def _judge_running(tool: str, digest: str, max_repeat: int, actions: Sequence[Action]) -> Verdict:
    run = 0
    for action in reversed(actions):
        if action.digest != digest or action.may_repeat:
            break
        run += 1
    if run >= max_repeat:
        return Verdict(Repeat.THIRD_ACTION)
    if run == max_repeat - 1 and run > 0:
        return Verdict(Repeat.SAME_ACTION, actions[-1])
    return _judge_results(tool, actions)


def _judge_results(tool: str, actions: Sequence[Action]) -> Verdict:
    """Different arguments, equal notable results twice running: withhold once, then stop."""
    if not actions or actions[-1].tool != tool:
        return Verdict(Repeat.FRESH)
    last = actions[-1]
    withheld = not last.executed and last.outcome is Outcome.ERROR and not last.may_repeat
    executed = [a for a in actions if a.executed][-2:]
    if len(executed) < 2 or any(a.tool != tool or not a.notable for a in executed):  # noqa: PLR2004 - a pair
        return Verdict(Repeat.FRESH)
    first, second = executed
    if first.result_digest != second.result_digest or first.digest == second.digest:
        return Verdict(Repeat.FRESH)
    return Verdict(Repeat.THIRD_RESULT if withheld else Repeat.SAME_RESULT)


def looping(actions: Sequence[Action], limits: Limits, fresh: int) -> str | None:
    """Return why the last `fresh` actions are a loop, or None (LOOP-6).

    By frequency: one of them stands `loop_threshold` times among the last `loop_window`. By
    period: two or three actions were made twice in full with unchanged results.
    """
    counted = [a for a in actions if not a.polling]
    window = [a.loop_digest for a in counted[-limits.loop_window :]]
    for action in counted[len(counted) - min(fresh, len(counted)) :]:
        if window.count(action.loop_digest) >= limits.loop_threshold:
            return f"{action.tool} was called {limits.loop_threshold} times with the same arguments"
    for period in _PERIODS:
        tail = [(a.loop_digest, a.result_digest) for a in counted[-2 * period :]]
        if len(tail) == 2 * period and tail[:period] == tail[period:] and len(set(tail)) > 1:
            return f"a cycle of {period} calls was made twice with unchanged results"
    return None


def failing_tools(actions: Sequence[Action], fresh: int) -> tuple[str, ...]:
    """Return the tools of the last `fresh` actions that failed or gave nothing twice (LOOP-8).

    Faults about the form of arguments do not count: those the model can mend.
    """
    failing: list[str] = []
    for tool in dict.fromkeys(a.tool for a in actions[len(actions) - min(fresh, len(actions)) :]):
        last = [a for a in actions if a.tool == tool and a.executed][-_REPEATS_BEFORE_WITHDRAWAL:]
        bad = [a for a in last if (a.outcome is not Outcome.OK or a.empty) and not a.polling]
        if len(bad) == _REPEATS_BEFORE_WITHDRAWAL and not any(a.may_repeat for a in bad):
            failing.append(tool)
    return tuple(failing)


def stop_after_step(
    limits: Limits, *, step: int, errors_running: int, loop: str | None
) -> tuple[StopReason, str] | None:
    """Return the guard that ends the turn after a step, by precedence, or None (LOOP-16)."""
    if errors_running >= limits.max_consecutive_errors:
        return (
            StopReason.CONSECUTIVE_ERRORS,
            f"{errors_running} steps running had no successful tool call",
        )
    if loop is not None:
        return StopReason.LOOP_DETECTED, loop
    if step >= limits.max_steps:
        return StopReason.MAX_STEPS, steps_used(limits)
    return None


def steps_used(limits: Limits) -> str:
    """Return what is said of a turn that has made all its steps (LOOP-3)."""
    return f"the limit of {limits.max_steps} steps is reached"
