"""The table of status and verb of the HTTP contract, row by row; statuses, reasons, arrows."""

import pytest

from app.core.lifecycle import (
    ALIVE,
    TRANSITIONS,
    PendingKind,
    Phase,
    Ruling,
    Status,
    StopReason,
    Verb,
    rule,
    status_of,
)

BY_POLICY, CONFLICT, ACCEPT = Ruling.BY_POLICY, Ruling.CONFLICT, Ruling.ACCEPT
UNCHANGED, NEXT_TURN = Ruling.UNCHANGED, Ruling.NEXT_TURN
ANSWER, WITH_LIMITS = Ruling.ANSWER, Ruling.ONLY_WITH_LIMITS
S, R, P = Status, StopReason, PendingKind
Row = tuple[Status, PendingKind | None, StopReason | None, bool, Ruling, Ruling, Ruling]

TABLE: list[Row] = [
    # status, pending, reason, owner alive → messages, resume, cancel
    (S.QUEUED, None, None, True, BY_POLICY, CONFLICT, ACCEPT),
    (S.QUEUED, None, None, False, BY_POLICY, CONFLICT, ACCEPT),
    (S.RUNNING, None, None, True, BY_POLICY, CONFLICT, ACCEPT),
    (S.RUNNING, None, None, False, BY_POLICY, ACCEPT, ACCEPT),
    (S.WAITING, P.INPUT, None, True, ANSWER, CONFLICT, ACCEPT),
    (S.WAITING, P.ESCALATION, None, True, ANSWER, CONFLICT, ACCEPT),
    (S.WAITING, P.APPROVAL, None, True, BY_POLICY, CONFLICT, ACCEPT),
    (S.WAITING, P.CLIENT_TOOLS, None, True, BY_POLICY, CONFLICT, ACCEPT),
    (S.WAITING, P.VERIFICATION, None, False, BY_POLICY, CONFLICT, ACCEPT),
    (S.STOPPED, None, R.MAX_STEPS, True, NEXT_TURN, WITH_LIMITS, UNCHANGED),
    (S.COMPLETED, None, R.FINAL_ANSWER, True, NEXT_TURN, CONFLICT, UNCHANGED),
    (S.CANCELLED, None, R.CANCELLED, True, NEXT_TURN, CONFLICT, UNCHANGED),
    (S.FAILED, None, R.UNRECOVERABLE_ERROR, True, NEXT_TURN, ACCEPT, UNCHANGED),
    (S.FAILED, None, R.MODEL_UNAVAILABLE, False, NEXT_TURN, ACCEPT, UNCHANGED),
    (S.FAILED, None, R.SECURITY, True, CONFLICT, CONFLICT, UNCHANGED),
    (S.CLOSED, None, R.FINAL_ANSWER, True, CONFLICT, CONFLICT, UNCHANGED),
    (S.CLOSED, None, R.MAX_STEPS, False, CONFLICT, CONFLICT, UNCHANGED),
]


@pytest.mark.req("API-4", "API-7", "API-8")
@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r[0].value}-{r[1] or r[2]}-{r[3]}")
def test_the_table_of_the_contract(row: Row) -> None:
    status, pending, reason, alive, *expected = row
    verbs = (Verb.MESSAGE, Verb.RESUME, Verb.CANCEL)
    ruled = [rule(v, status, pending=pending, reason=reason, owner_alive=alive) for v in verbs]
    assert ruled == expected


@pytest.mark.parametrize("status", Status)
def test_close_is_taken_by_all_but_the_closed(status: Status) -> None:
    assert rule(Verb.CLOSE, status) is (UNCHANGED if status is S.CLOSED else ACCEPT)


def test_no_status_is_missing_in_the_table() -> None:
    assert {row[0] for row in TABLE} == set(Status)
    assert {row[1] for row in TABLE if row[1]} == set(PendingKind)
    assert {S.QUEUED, S.RUNNING, S.WAITING} == ALIVE


@pytest.mark.req("LOOP-10")
@pytest.mark.parametrize("reason", StopReason)
def test_each_reason_has_its_status(reason: StopReason) -> None:
    known = {
        R.FINAL_ANSWER: S.COMPLETED,
        R.CANCELLED: S.CANCELLED,
        R.UNRECOVERABLE_ERROR: S.FAILED,
        R.MODEL_UNAVAILABLE: S.FAILED,
        R.SECURITY: S.FAILED,
    }
    assert status_of(reason) is known.get(reason, S.STOPPED)


@pytest.mark.req("LOOP-10")
def test_the_reasons_are_those_of_the_contract() -> None:
    contract = (
        "final_answer max_steps token_budget max_cost consecutive_errors loop_detected "
        "repeated_action repeated_result total_timeout tool_unavailable context_overflow "
        "output_invalid step_failed replan_limit model_unavailable refused expired escalated "
        "unrecoverable_error security cancelled"
    )
    assert [reason.value for reason in StopReason] == contract.split()


@pytest.mark.req("LOOP-1")
def test_done_is_reached_from_everywhere_and_left_by_no_arrow() -> None:
    assert set(TRANSITIONS) == {None, *Phase}
    assert TRANSITIONS[Phase.DONE] == frozenset()
    assert all(Phase.DONE in to for source, to in TRANSITIONS.items() if source != Phase.DONE)
