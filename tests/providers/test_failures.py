"""What refusals of an endpoint mean."""

import pytest

from app.core.faults import Fault, FaultKind
from app.providers.failures import retry_after_us
from tests.providers.support import KEY, NOW_US, refusal
from tests.scripted.answers import Answer, error, status

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


async def fault_of(answer: Answer) -> Fault:
    return (await refusal(answer)).fault


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, FaultKind.REFUSED_REQUEST),
        (401, FaultKind.REFUSED_REQUEST),
        (403, FaultKind.REFUSED_REQUEST),
        (404, FaultKind.REFUSED_REQUEST),
        (307, FaultKind.REFUSED_REQUEST),
        (408, FaultKind.TIMEOUT),
        (429, FaultKind.RATE_LIMITED),
        (500, FaultKind.UNAVAILABLE),
        (503, FaultKind.UNAVAILABLE),
        (529, FaultKind.UNAVAILABLE),
    ],
)
@pytest.mark.req("OPS-6")
async def test_a_status_is_a_fault(code: int, kind: FaultKind) -> None:
    fault = await fault_of(error(code, "why it is so"))
    assert fault.kind is kind
    assert fault.sent
    assert ("why it is so" in fault.message) == (code != 401)


@pytest.mark.case("C029")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "bad thing", "type": "invalid_request_error"}}, "bad thing"),
        ({"error": "bad thing"}, "bad thing"),
        ({"message": "bad thing"}, "bad thing"),
        ({"detail": [{"loc": ["body", "tools"], "msg": "extra"}]}, '"msg":"extra"'),
        (b"bad\x00 \xffthing", "bad\ufffd \ufffdthing"),
        (b"", "no reason"),
    ],
)
async def test_the_providers_own_words_are_kept(body: object, said: str) -> None:
    fault = await fault_of(status(400, body))
    assert fault.kind is FaultKind.REFUSED_REQUEST
    assert said in fault.message


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens.",
        "the request exceeds the available context size",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
async def test_a_context_that_is_too_long_is_told_apart(message: str) -> None:
    assert (await fault_of(error(400, message))).kind is FaultKind.CONTEXT_TOO_LONG


@pytest.mark.case("C027")
@pytest.mark.parametrize(
    ("headers", "wait_us"),
    [
        ({"Retry-After": "3"}, 3_000_000),
        ({"Retry-After": "0.5"}, 500_000),
        ({"Retry-After": "Mon, 30 Nov 2026 12:00:02 GMT", "Date": DATE}, 2_000_000),
        ({"Retry-After": "Mon, 30 Nov 2026 11:59:00 GMT", "Date": DATE}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_read_or_ignored(headers: dict[str, str], wait_us: int | None) -> None:
    fault = await fault_of(error(429, "slow down", headers))
    assert (fault.kind, fault.retry_after_us) == (FaultKind.RATE_LIMITED, wait_us)


def test_without_a_date_of_its_own_our_clock_counts() -> None:
    headers = {"Retry-After": "Thu, 09 Oct 2025 08:53:25 GMT"}
    assert retry_after_us(headers, NOW_US) == 5_000_000


@pytest.mark.case("C146")
@pytest.mark.parametrize("code", [400, 401, 403, 429, 500])
async def test_a_key_is_in_no_message(code: int) -> None:
    failure = await refusal(error(code, f"Incorrect API key provided: {KEY} (was sk-other**key)"))
    assert KEY not in str(failure)
    assert "sk-other" not in str(failure)
    assert ("SUREFOOT_LLM_API_KEY" in str(failure)) == (code in {401, 403})


@pytest.mark.case("C015")
@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ({"message": "upstream busy", "code": 503}, FaultKind.UNAVAILABLE),
        ({"message": "upstream busy", "code": "429"}, FaultKind.RATE_LIMITED),
        ({"message": "upstream busy", "type": "rate_limit_exceeded"}, FaultKind.RATE_LIMITED),
        ({"message": "upstream busy", "code": "server_error"}, FaultKind.UNAVAILABLE),
        ({"message": "upstream busy", "code": "request_timeout"}, FaultKind.TIMEOUT),
        ({"message": "upstream busy", "code": 400}, FaultKind.REFUSED_REQUEST),
        ("upstream busy", FaultKind.UNAVAILABLE),
    ],
)
async def test_an_error_inside_an_answer_is_a_fault(problem: object, kind: FaultKind) -> None:
    fault = await fault_of(status(200, {"id": None, "choices": None, "error": problem}))
    assert fault.kind is kind
    assert "upstream busy" in fault.message
