"""A step's calls when it is over: results into the history, actions into the guards' windows."""

from collections.abc import Iterable
from typing import Final

from app.core.canonical import digest
from app.core.changing import changed
from app.core.context import MESSAGE_OVERHEAD, content_of, fact_of
from app.core.events import CallMade, EffectClass, Outcome, ToolFinished
from app.core.messages import ToolMessage
from app.core.state import ACTION_MEMORY, Action, CallStage, OpenCall, State

_FACTS_KEPT: Final = 20
_UNKNOWN_KEPT: Final = 256
LOST_TOKENS: Final = 12


def flush_calls(state: State, *, ending: bool) -> State:
    """Put the results of the step into the history in the order asked, and into the windows.

    A call that was made twice in one step counts once: the model saw no result in between. Calls
    which the end of the turn (or a fork) cut off are no error of the step.
    """
    closed = [(c.call, c.result or _lost(c)) for c in state.calls]
    messages = [
        ToolMessage(
            c.call.call_id, c.call.wire_id, c.call.name, _content(c, result), _tokens(c, result)
        )
        for c, (_, result) in zip(state.calls, closed, strict=True)
    ]
    actions: list[Action] = []
    for call, result in closed:
        action = _action(call, result)
        if result.executed or all(action.digest != other.digest for other in actions):
            actions.append(action)
    good = [a for a in actions if a.outcome is Outcome.OK]
    cut = all(a.outcome is Outcome.CANCELLED for a in actions)
    errors = 0 if good else state.errors_running + (0 if cut else 1)
    done = (a for a in actions if a.executed and a.effect is EffectClass.ONCE)
    facts = (fact_of(a) for a in good if a.executed)
    return changed(
        state,
        history=(*state.history, *messages),
        context_tokens=state.context_tokens + sum(m.tokens + MESSAGE_OVERHEAD for m in messages),
        actions=(*state.actions, *actions)[-max(ACTION_MEMORY, state.limits.loop_window) :],
        once_done=(*state.once_done, *done),
        facts=(*state.facts, *facts)[-_FACTS_KEPT:],
        errors_running=state.errors_running if ending else errors,
        calls=(),
    )


def still_unknown(once_done: Iterable[Action]) -> tuple[Action, ...]:
    """Return what the next turn has to know of earlier ones: `once` actions that may have happened.

    One that a person allowed again, and which then succeeded, is in doubt no more.
    """
    last = {action.digest: action for action in once_done}
    unknown = [action for action in last.values() if action.outcome is Outcome.UNKNOWN]
    return tuple(unknown[-_UNKNOWN_KEPT:])


def _content(open_call: OpenCall, result: ToolFinished) -> str:
    content = content_of(result)
    return content if open_call.note is None else f"{content}\n\n[{open_call.note}]"


def _tokens(open_call: OpenCall, result: ToolFinished) -> int:
    return result.tokens + (0 if open_call.note is None else open_call.note_tokens)


def _action(call: CallMade, result: ToolFinished) -> Action:
    """Return a finished call for the guards; one that could not be read is known by its text."""
    unread = "" if call.digest else digest({"tool": call.name, "raw": call.raw})
    return Action(
        call_id=call.call_id,
        tool=call.name,
        digest=call.digest or unread,
        loop_digest=call.loop_digest or unread,
        outcome=result.outcome,
        result_digest=result.digest,
        notable=result.notable,
        empty=result.empty,
        polling=call.polling,
        executed=result.executed,
        effect=call.effect,
        content=content_of(result),
        tokens=result.tokens,
        may_repeat=result.may_repeat,
    )


def _lost(open_call: OpenCall) -> ToolFinished:
    """Return the result of a call left open by an end that did not fold (poison; STATE-10)."""
    sent = open_call.stage is CallStage.INTENDED
    uncertain = sent and open_call.call.effect is EffectClass.ONCE
    return ToolFinished(
        open_call.call.call_id,
        open_call.call.name,
        Outcome.UNKNOWN if uncertain else Outcome.CANCELLED,
        content="The call was interrupted; its outcome is unknown.",
        tokens=LOST_TOKENS,
        executed=sent,
        may_repeat=not uncertain,
    )
