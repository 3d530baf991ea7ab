"""`approvals`, `approve`, `deny`, `result`, `tell`, `fork`, and how a waiting session asks."""

import json

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.events import ANSWER, Journal, Json, golden, until_answer
from tests.cli.fake_service import Answer, FakeService, Rest, problem

APR = "apr_1_t1_c1_1"
APPROVAL: Json = {
    "id": APR,
    "session_id": "ses_1",
    "call_id": "t1_c1_1",
    "name": "pay",
    "arguments": {"amount": 5},
    "hash": "5eed",
    "status": "pending",
    "expires_at": "2025-12-16T07:00:00.000000Z",
}


def _asks(service: FakeService) -> None:
    """Let a session of the service wait for an approval, and go on when it is decided."""
    service.answers[f"GET /v1/approvals/{APR}"] = [Answer(200, APPROVAL)]
    service.answers[f"POST /v1/approvals/{APR}"] = [Answer(200, {**APPROVAL, "status": "approved"})]
    service.streams = [golden()]
    service.session = {"status": "completed", "last_seq": 0}


def _waiting(service: FakeService, pending: Json) -> None:
    journal = until_answer()
    journal.move("WAITING")
    service.streams = [[*journal.events, Rest()]]
    service.session = {"status": "waiting", "pending": pending}


@pytest.mark.req("TOOL-17")
async def test_approvals_are_listed(service: FakeService, surefoot: Surefoot) -> None:
    pages = [{"data": [APPROVAL], "next": "ses_1"}, {"data": [], "next": None}]
    service.answers["GET /v1/approvals"] = [Answer(200, page) for page in pages]
    ran = await surefoot("approvals")
    assert " ".join(ran.out.split()).endswith(
        f'{APR} pending 2025-12-16T07:00:00Z pay {{"amount":5}}'
    )
    service.answers["GET /v1/approvals"] = [Answer(200, {"data": [APPROVAL], "next": None})]
    ran = await surefoot("approvals", "--session", "ses_1", "--json")
    assert json.loads(ran.out) == [APPROVAL]
    queries = [seen.query for seen in service.of("GET", "/v1/approvals")]
    limit = {"limit": "500"}
    assert queries == [limit, {**limit, "after": "ses_1"}, {**limit, "session": "ses_1"}]


@pytest.mark.req("TOOL-17")
async def test_an_approval_is_sent_and_the_session_watched(
    service: FakeService, surefoot: Surefoot
) -> None:
    _asks(service)
    changed = ("--message", "less", "--arguments", '{"amount": 4}', "--hash", "5eed")
    ran = await surefoot("approve", APR, *changed)
    (sent,) = service.of("POST", f"/v1/approvals/{APR}")
    assert sent.body == {
        "decision": "approve",
        "message": "less",
        "arguments": {"amount": 4},
        "hash": "5eed",
    }
    assert (ran.code, ran.out) == (0, f"{ANSWER}\n")


async def test_a_denial_can_be_left_at_that(service: FakeService, surefoot: Surefoot) -> None:
    _asks(service)
    denied = {**APPROVAL, "status": "denied"}
    service.answers[f"POST /v1/approvals/{APR}"] = [Answer(200, denied)]
    ran = await surefoot("deny", APR, "--message", "no", "--detach")
    (sent,) = service.of("POST", f"/v1/approvals/{APR}")
    assert sent.body == {"decision": "deny", "message": "no"}
    assert (ran.code, ran.out) == (0, f"{APR} denied\n")
    assert service.of("GET", "/v1/sessions/ses_1/stream") == []


async def test_what_was_decided_already_is_exit_2(service: FakeService, surefoot: Surefoot) -> None:
    _asks(service)
    refusal = problem(409, "Decided already", detail="Somebody decided this approval already.")
    service.answers[f"POST /v1/approvals/{APR}"] = [refusal]
    ran = await surefoot("approve", APR)
    assert (ran.code, "Somebody decided this approval already." in ran.err) == (2, True)
    for wrong in (("approve", "a/b"), ("approve", APR, "--arguments", "less")):
        assert (await surefoot(*wrong)).code == 2


async def test_the_second_of_two_approvals_is_asked_for_after_the_first(
    service: FakeService, surefoot: Surefoot
) -> None:
    """The session does not enter WAITING anew: it never left."""
    _asks(service)
    journal = Journal(phase="WAITING")
    journal.add("approval.decided", call_id="t1_c1_1", decision="approve")
    service.streams = [[*journal.events, Rest()]]
    other = {**APPROVAL, "id": "apr_1_t1_c1_2"}
    pending = {"kind": "approval", "approvals": [other]}
    service.session = {"status": "waiting", "last_seq": 0, "pending": pending}
    ran = await surefoot("approve", APR)
    assert ran.code == 6
    assert "approve apr_1_t1_c1_2" in ran.err


async def test_a_result_is_output_or_error(service: FakeService, surefoot: Surefoot) -> None:
    path = "/v1/sessions/ses_1/tool_results"
    service.answers[f"POST {path}"] = [Answer(202, {"id": "ses_1", "status": "queued"})] * 2
    service.streams = [golden()]
    service.session = {"status": "completed", "last_seq": 0}
    ran = await surefoot("result", "ses_1", "t1_c1_1", "--output", '{"celsius": 21}')
    assert (ran.code, ran.out) == (0, f"{ANSWER}\n")
    ran = await surefoot("result", "ses_1", "t1_c1_1", "--error", "no device", "--detach")
    assert (ran.code, ran.out) == (0, "ses_1 queued\n")
    assert [seen.body for seen in service.of("POST", path)] == [
        {"call_id": "t1_c1_1", "output": {"celsius": 21}},
        {"call_id": "t1_c1_1", "error": "no device"},
    ]
    for wrong in ((), ("--output", "1", "--error", "x"), ("--output", "warm")):
        assert (await surefoot("result", "ses_1", "t1_c1_1", *wrong)).code == 2


@pytest.mark.req("API-7")
async def test_a_message_says_what_became_of_it(service: FakeService, surefoot: Surefoot) -> None:
    path = "/v1/sessions/ses_1/messages"
    receipts = [{"receipt": "steered", "session": {}}, {"receipt": "started", "session": {}}]
    service.answers[f"POST {path}"] = [Answer(202, receipt) for receipt in receipts]
    service.streams = [golden()]
    service.session = {"status": "completed", "last_seq": 0}
    ran = await surefoot("tell", "ses_1", "in French", "--when-busy", "steer")
    assert (ran.code, ran.out, ran.err) == (0, f"{ANSWER}\n", "The message is steered.\n")
    ran = await surefoot("tell", "ses_1", "more", "--detach")
    assert (ran.code, ran.out) == (0, "started\n")
    assert [seen.body for seen in service.of("POST", path)] == [
        {"text": "in French", "when_busy": "steer"},
        {"text": "more", "when_busy": "reject"},
    ]
    assert (await surefoot("tell", "ses_1", " ")).code == 2


@pytest.mark.req("STATE-7")
async def test_a_fork_is_watched_where_it_runs(service: FakeService, surefoot: Surefoot) -> None:
    path = "/v1/sessions/ses_0/fork"
    made = {"id": "ses_1", "status": "queued", "last_seq": 0}
    service.answers[f"POST {path}"] = [
        Answer(201, made),
        Answer(201, {**made, "status": "stopped"}),
    ]
    service.streams = [golden()]
    service.session = {"status": "completed"}
    ran = await surefoot("fork", "ses_0", "--at", "7", "--task", "Or else?", "--model", "m2")
    assert (ran.code, ran.out) == (0, f"{ANSWER}\n")
    assert "Forked into ses_1." in ran.err
    ran = await surefoot("fork", "ses_0", "--at", "7")
    assert (ran.code, ran.out) == (0, "ses_1\n")
    assert [seen.body for seen in service.of("POST", path)] == [
        {"at_seq": 7, "task": "Or else?", "model": "m2"},
        {"at_seq": 7},
    ]


CALL = {"call_id": "t1_c1_1", "name": "pay", "arguments": {"amount": 5}}
OTHER = {**CALL, "call_id": "t1_c1_2"}


@pytest.mark.parametrize(
    ("pending", "commands"),
    [
        ({"kind": "approval", "approvals": [APPROVAL]}, [f"approve {APR}", f"deny {APR}"]),
        (
            {"kind": "client_tools", "calls": [{**CALL, "wants": "result"}]},
            ["result ses_1 t1_c1_1 --output JSON"],
        ),
        ({"kind": "client_tools", "calls": [CALL]}, ["result ses_1 t1_c1_1 --output JSON"]),
        (
            {
                "kind": "approval",
                "approvals": [APPROVAL],
                "calls": [{**CALL, "wants": "result"}, {**OTHER, "wants": "verification"}],
            },
            [f"approve {APR}", "result ses_1 t1_c1_1", "verify ses_1 t1_c1_2 happened"],
        ),
        ({"kind": "input", "question": {"text": "Which one?"}}, ["tell ses_1 TEXT"]),
    ],
)
async def test_a_session_that_waits_says_which_command_answers(
    service: FakeService, surefoot: Surefoot, pending: Json, commands: list[str]
) -> None:
    _waiting(service, pending)
    ran = await surefoot("run", "Pay", "--follow")
    assert ran.code == 6
    assert f"ses_1 waits: {pending['kind']}" in ran.err
    for command in commands:
        assert f"  surefoot {command}" in ran.err
