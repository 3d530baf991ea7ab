"""What others say of a call: a person who approves or verifies, the caller, the tool itself.

A call whose outcome nobody here knows is looked up at the tool where that can be asked, and else
put to a person (TOOL-10). A call that needs approval is bound to its arguments (TOOL-17).
"""

from typing import Final

from app.core.draft import Draft
from app.core.events import (
    ApprovalDecided,
    Choice,
    Outcome,
    ToolChecked,
    ToolFinished,
    VerificationDecided,
)
from app.core.faults import Fault, FaultKind, Hint, RetryPolicy, backoff_us
from app.core.inputs import ApprovalGiven, ClientAnswered, StatusChecked, Verified
from app.core.phases.act import advance, close_unknown, find
from app.core.phases.admit import admit, close
from app.core.phases.ending import FAULT_TOKENS
from app.core.state import Doubt, OpenCall

MOST_CHECKS: Final = 3
_US: Final = 1_000_000


def verified(draft: Draft, answer: Verified) -> None:
    """Close a call in doubt as a person says."""
    open_call = find(draft.state, answer.call_id)
    draft.emit(VerificationDecided(answer.call_id, answer.happened, answer.output))
    if answer.happened:
        _happened(draft, open_call, answer)
    else:
        _did_not_happen(draft, open_call)
    advance(draft)


def _happened(draft: Draft, open_call: OpenCall, answer: Verified | StatusChecked) -> None:
    known = answer.output if answer.output is not None else "It happened; no output is known."
    call = open_call.call
    draft.emit(
        ToolFinished(
            call.call_id,
            call.name,
            Outcome.OK,
            output=known,
            content=answer.content,
            tokens=answer.tokens,
            attempts=open_call.attempt,
        )
    )


def _did_not_happen(draft: Draft, open_call: OpenCall) -> None:
    message = "It was verified that this call did not happen; you may make it again."
    fault = Fault.of(FaultKind.UNAVAILABLE, message)
    close(draft, open_call, Outcome.ERROR, fault, executed=False, may_repeat=True)


def checked(draft: Draft, answer: StatusChecked) -> None:
    """Take what the tool says of a call; ask again, or a person, when it does not say.

    That a call did not happen is believed only once its own timeout is over: until then the other
    side may still be at it.
    """
    open_call = find(draft.state, answer.call_id)
    doubt = open_call.doubt or Doubt(draft.at_us)
    timeout_us = int(open_call.call.timeout_s * _US)
    if answer.happened is True:
        draft.emit(_looked_up(answer, happened=True))
        _happened(draft, open_call, answer)
    elif answer.happened is False and draft.at_us >= doubt.since_us + timeout_us:
        draft.emit(_looked_up(answer, happened=False))
        _did_not_happen(draft, open_call)
    elif answer.happened is False:
        fault = Fault.of(FaultKind.UNAVAILABLE, "The call has not arrived yet, says the tool.")
        again = doubt.since_us + timeout_us
        draft.emit(ToolChecked(answer.call_id, doubt.checks + 1, fault, again))
    else:
        _not_known(draft, open_call, doubt, answer)
    advance(draft)


def _looked_up(answer: StatusChecked, *, happened: bool) -> VerificationDecided:
    output = answer.output if happened else None
    return VerificationDecided(answer.call_id, happened, output, by="status_check")


def _not_known(draft: Draft, open_call: OpenCall, doubt: Doubt, answer: StatusChecked) -> None:
    fault = answer.fault or Fault.of(FaultKind.UNKNOWN_OUTCOME, "The tool does not know the call.")
    attempt = doubt.checks + 1
    again = None
    if attempt < MOST_CHECKS:
        again = draft.at_us + backoff_us(attempt, RetryPolicy(), answer.jitter)
    draft.emit(ToolChecked(answer.call_id, attempt, fault, again))
    if again is None and not doubt.lost:
        close_unknown(draft, open_call, fault)


def decided(draft: Draft, open_call: OpenCall, given: ApprovalGiven) -> None:
    """Take a decision: an approved call may start, a denied one is closed.

    Changed arguments are a new action: the guards look at them again.
    """
    draft.emit(
        ApprovalDecided(
            given.approval_id,
            open_call.call.call_id,
            given.decision,
            message=given.message,
            arguments=given.arguments,
            digest=given.digest,
            loop_digest=given.loop_digest,
            note=given.note,
            note_tokens=given.note_tokens,
            by=given.by,
        )
    )
    if given.decision is not Choice.APPROVE:
        _denied(draft, open_call, given)
    elif given.arguments is not None:
        _admit_changed(draft, open_call.call.call_id)
    advance(draft)


def _admit_changed(draft: Draft, call_id: str) -> None:
    """Let the guards look at a call with changed arguments; it is withheld where it repeats one.

    That ends no turn, as a repetition by the model would: it was a person who changed it.
    """
    calls = draft.state.calls
    index = next(n for n, c in enumerate(calls) if c.call.call_id == call_id)
    admit(draft, index, calls[index])


def _denied(draft: Draft, open_call: OpenCall, given: ApprovalGiven) -> None:
    if given.decision is Choice.EXPIRED:
        message = "Nobody approved this call in time; it was not made."
    else:
        message = "A person denied this call; it was not made."
    if given.message:
        message = f"{message} They say: {given.message}"
    fault = Fault.of(FaultKind.PERMISSION, message, hint=Hint.ASK_USER)
    tokens = FAULT_TOKENS + given.note_tokens
    close(draft, open_call, Outcome.DENIED, fault, executed=False, tokens=tokens)


def lapse(draft: Draft) -> None:
    """Take every approval whose time is over as denied."""
    for open_call in draft.state.calls:
        approval = open_call.approval
        if approval is None or not open_call.unapproved:
            continue
        if approval.expires_at_us <= draft.at_us:
            given = ApprovalGiven(draft.at_us, approval.approval_id, Choice.EXPIRED)
            call_id = open_call.call.call_id
            draft.emit(ApprovalDecided(approval.approval_id, call_id, Choice.EXPIRED))
            _denied(draft, open_call, given)
    advance(draft)


def client_answered(draft: Draft, given: ClientAnswered) -> None:
    """Close a call which the caller carried out."""
    open_call = find(draft.state, given.call_id)
    if given.error is not None:
        fault = Fault.of(FaultKind.INTERNAL, given.error, hint=Hint.OTHER_TOOL)
        close(draft, open_call, Outcome.ERROR, fault, executed=True, tokens=given.tokens)
    else:
        call = open_call.call
        draft.emit(
            ToolFinished(
                call.call_id,
                call.name,
                Outcome.OK,
                output=given.output,
                content=given.content,
                tokens=given.tokens,
                digest=given.digest,
                empty=given.empty,
                notable=given.notable,
            )
        )
    advance(draft)
