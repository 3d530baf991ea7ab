"""THINK: what the model's answer, or the lack of one, means for the turn."""

from dataclasses import replace
from typing import assert_never

from app.core import guards
from app.core.context import digest, next_input, steering_tokens
from app.core.draft import Draft
from app.core.events import (
    GuardTripped,
    ModelAnswered,
    ModelFailed,
    Purpose,
    Result,
    StepFinished,
    Usage,
)
from app.core.faults import (
    Fault,
    FaultClass,
    FaultKind,
    Retry,
    RetryPolicy,
    Stop,
    ToModel,
    respond,
)
from app.core.inputs import ModelFaulted, ModelReturned
from app.core.lifecycle import Phase, StopReason
from app.core.phases import act
from app.core.phases.ending import end, stop
from app.core.phases.observe import forbidden, go_on
from app.core.state import State

MODEL_RETRIES = RetryPolicy(max_attempts=3)
_EMPTY = "empty_answer"
_INCOMPLETE = "incomplete_answer"
_UNPARSED = "unparsed_tool_call"
_NOTE_TOKENS = 40
_EMPTY_NOTE = (
    "Your last answer was empty. Answer the user now, or call a tool if something is missing."
)
_INCOMPLETE_NOTE = (
    "You said that the answer is not complete. Go on if a tool can supply what is missing; "
    "otherwise finish again and say what is missing."
)


def answered(draft: Draft, returned: ModelReturned) -> None:
    """Take an answer: calls go to ACT, text ends the turn, nothing at all is asked once again."""
    request = draft.state.request
    answer = returned.answer
    answer = replace(answer, usage=_priced(draft.state, answer.usage))
    if request is not None and request.purpose is Purpose.CLOSING:
        _closing_answered(draft, replace(answer, tool_calls=()))
    elif answer.tool_calls:
        draft.emit(answer)
        act.begin(draft)
    elif _is_empty(answer):
        _empty(draft, answer)
    else:
        draft.emit(answer)
        draft.move(Phase.REFLECT)
        _conclude(draft, answer)


def _priced(state: State, usage: Usage) -> Usage:
    return replace(usage, cost=guards.cost_of(state.model, usage))


def _buys_again(state: State, lost: Usage) -> bool:
    """Return whether the same request may be bought once more, what was lost being spent."""
    spent, size = state.spent.plus(lost), next_input(state, Purpose.STEP)
    within = guards.within_cost(state.limits, state.model, spent, size)
    return within and guards.affordable(state.limits, spent, size)


def _is_empty(answer: ModelAnswered) -> bool:
    said = answer.text if answer.finish is None else answer.finish.text
    return not said.strip()


def _closing_answered(draft: Draft, answer: ModelAnswered) -> None:
    draft.emit(answer)
    draft.move(Phase.REFLECT)
    state = draft.state
    text = answer.text if answer.finish is None else answer.finish.text
    confidence = None if answer.finish is None else answer.finish.confidence
    text = text if text.strip() else digest(state.facts, state.best)
    result = Result(text, complete=False, confidence=confidence)
    end(draft, state.stopping or StopReason.MAX_STEPS, result)


def _empty(draft: Draft, answer: ModelAnswered) -> None:
    """An empty answer: one silent repetition, one re-ask with a note, then the turn is over."""
    state = draft.state
    request = state.request
    asked = _EMPTY in state.nudges
    silently = request is not None and request.attempt == 1 and not asked
    if silently and _buys_again(state, answer.usage):
        fault = Fault.of(FaultKind.EMPTY_ANSWER, "The model answered with nothing.")
        draft.emit(ModelFailed(fault, 1, retry_at_us=draft.at_us, usage=answer.usage))
        return
    draft.emit(answer)
    draft.move(Phase.REFLECT)
    draft.emit(StepFinished(0, 0, draft.state.spent.tokens))
    if asked:
        stop(draft, StopReason.OUTPUT_INVALID, "the model answered with nothing after a re-ask")
        return
    draft.emit(GuardTripped(_EMPTY, "asked once again", note=_EMPTY_NOTE, note_tokens=_NOTE_TOKENS))
    go_on(draft)


def _conclude(draft: Draft, answer: ModelAnswered) -> None:
    draft.emit(StepFinished(0, 0, draft.state.spent.tokens))
    finish = answer.finish
    if _steered(draft.state):
        go_on(draft)
        return
    if finish is None:
        if "<tool_call>" in answer.text:
            draft.emit(GuardTripped(_UNPARSED, "a tool call in plain text was not executed"))
        end(draft, StopReason.FINAL_ANSWER, Result(answer.text))
        return
    goes_on = finish.complete is False and _INCOMPLETE not in draft.state.nudges
    if goes_on and draft.state.step < draft.state.limits.max_steps:
        detail = f"missing: {finish.missing}" if finish.missing else "the answer is incomplete"
        note = GuardTripped(_INCOMPLETE, detail, note=_INCOMPLETE_NOTE, note_tokens=_NOTE_TOKENS)
        draft.emit(note)
        go_on(draft)
        return
    result = Result(finish.text, complete=finish.complete, confidence=finish.confidence)
    end(draft, StopReason.FINAL_ANSWER, result)


def _steered(state: State) -> bool:
    """Return whether the user said something meanwhile, so that this answer is not the last.

    Where no guard lets the turn go on, it ends with this answer, and the next one takes that up.
    """
    more = steering_tokens(state)
    return more > 0 and forbidden(state, next_input(state, Purpose.STEP) + more) is None


def faulted(draft: Draft, failed: ModelFaulted) -> None:
    """Take a failure: wait and ask again, or end the turn saying why."""
    request = draft.state.request
    attempt = 1 if request is None else request.attempt
    closing = request is not None and request.purpose is Purpose.CLOSING
    failed = replace(failed, usage=_priced(draft.state, failed.usage))
    fault = failed.fault
    response = ToModel() if closing else respond(fault, attempt, MODEL_RETRIES, failed.jitter)
    match response:
        case Retry() if not _buys_again(draft.state, failed.usage):
            draft.emit(ModelFailed(fault, attempt, usage=failed.usage))
            draft.move(Phase.REFLECT)
            go_on(draft)  # there the guard which forbids it stops the turn
        case Retry(after_us):
            draft.emit(ModelFailed(fault, attempt, draft.at_us + after_us, failed.usage))
        case Stop(fault_class):
            security = fault_class is FaultClass.SECURITY
            reason = StopReason.SECURITY if security else StopReason.UNRECOVERABLE_ERROR
            _give_up(draft, failed, attempt, reason)
        case ToModel():
            too_long = fault.kind is FaultKind.CONTEXT_TOO_LONG
            reason = StopReason.CONTEXT_OVERFLOW if too_long else StopReason.MODEL_UNAVAILABLE
            _give_up(draft, failed, attempt, reason)
        case _:
            assert_never(response)


def _give_up(draft: Draft, failed: ModelFaulted, attempt: int, reason: StopReason) -> None:
    draft.emit(ModelFailed(failed.fault, attempt, usage=failed.usage))
    end(draft, draft.state.stopping or reason, error=failed.fault)
