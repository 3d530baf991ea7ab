"""Status checks: how they are registered, what is asked, what an answer means (TOOL-10)."""

import asyncio
from dataclasses import replace

import pytest

from app.core.canonical import Json
from app.core.faults import FaultClass, FaultKind, classify
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.errors import ToolFailure, Withheld
from app.runtime.ports.tools import StatusReply
from app.tools.definition import describe, parse
from app.tools.errors import DefinitionError
from tests.tools.support import (
    TRACE,
    Seen,
    answering,
    call,
    json_answer,
    raw,
    serving,
    tools_for,
)

KEY = "ses_1%3At1_c1_0"
"""The key of the calls in these tests, as a URL has it."""


def body(root: str = "https://bank.test", /, **check: Json) -> dict[str, Json]:
    """Return a registration with a status check."""
    return {
        "name": "pay",
        "kind": "http",
        "description": "Pay somebody. Use it when asked to. Returns the receipt.",
        "parameters": {
            "type": "object",
            "properties": {
                "account": {"type": "string", "description": "From where"},
                "amount": {"type": "number", "description": "Euros"},
            },
            "required": ["account"],
        },
        "http": {"method": "POST", "url": f"{root}/payments"},
        "effect": "once",
        "status_check": {"url": f"{root}/payments/{{idempotency_key}}", **check},
    }


def spec(root: str, /, **check: Json) -> ToolSpec:
    return parse(body(root, **check)).spec


async def said(answer: bytes) -> StatusReply:
    async with serving(answering(answer)) as server, tools_for() as tools:
        return await tools.check(call(spec(server.url), account="a", amount=5))


async def failed(answer: bytes) -> FaultKind:
    with pytest.raises(ToolFailure) as raised:
        await said(answer)
    return raised.value.fault.kind


async def asked(**check: Json) -> Seen:
    """Return the request that a status check makes."""
    secrets = {"key": "s3cret-value"}
    async with serving(answering(raw(404))) as server, tools_for(secrets=secrets) as tools:
        root = server.url
        made = {k: v.replace("ROOT", root) if isinstance(v, str) else v for k, v in check.items()}
        await tools.check(call(spec(root, **made), account="a/b", amount=5))
    (seen,) = server.seen
    return seen


async def test_the_question_names_the_key_and_carries_nothing_else() -> None:
    seen = await asked()
    assert (seen.method, seen.target, seen.body) == ("GET", f"/payments/{KEY}", b"")
    assert seen.headers["traceparent"] == TRACE
    assert "idempotency-key" not in seen.headers


async def test_arguments_and_secrets_have_their_places() -> None:
    seen = await asked(
        method="POST",
        url="ROOT/of/{account}/lookup",
        query={"key": "{idempotency_key}"},
        headers={"X-Key": "{{secret:key}}", "X-Call": "{idempotency_key}"},
        body={"reference": "{idempotency_key}", "amount": "{amount}"},
    )
    assert (seen.method, seen.target) == ("POST", f"/of/a%2Fb/lookup?key={KEY}")
    assert seen.headers["x-key"] == "s3cret-value"
    assert seen.headers["x-call"] == "ses_1:t1_c1_0"
    assert seen.body == b'{"reference":"ses_1:t1_c1_0","amount":5}'


async def test_a_post_without_a_body_sends_none() -> None:
    seen = await asked(method="POST")
    assert (seen.method, seen.body, seen.headers["content-length"]) == ("POST", b"", "0")


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (json_answer('{"receipt": 7}'), {"receipt": 7}),
        (json_answer('{"happened": true}'), {"happened": True}),
        (json_answer('{"happened": true, "output": {"receipt": 7}}'), {"receipt": 7}),
        (raw(204), None),
        (raw(201, b"done", content_type="text/plain"), "done"),
    ],
)
async def test_success_means_that_it_happened(answer: bytes, output: Json) -> None:
    status = await said(answer)
    assert (status.happened, status.output) == (True, output)
    assert status.detail.endswith("carried it out.")


@pytest.mark.parametrize("answer", [raw(404), raw(410), json_answer('{"happened": false}')])
async def test_not_found_means_that_it_did_not(answer: bytes) -> None:
    status = await said(answer)
    assert (status.happened, status.output) == (False, None)
    assert status.detail


@pytest.mark.parametrize("answer", [raw(202), json_answer('{"happened": null}')])
async def test_a_tool_may_not_know_yet(answer: bytes) -> None:
    status = await said(answer)
    assert status.happened is None
    assert status.detail


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(500), FaultKind.UNAVAILABLE),
        (raw(503, retry_after="7"), FaultKind.UNAVAILABLE),
        (raw(429), FaultKind.RATE_LIMITED),
        (raw(401), FaultKind.PERMISSION),
        (raw(400), FaultKind.INVALID_ARGS),
        (raw(302, location="/elsewhere"), FaultKind.INTERNAL),
        (raw(307, location="/elsewhere"), FaultKind.INTERNAL),
        (json_answer('{"happened": "yes"}'), FaultKind.INTERNAL),
        (b"nonsense\r\n\r\n", FaultKind.UNAVAILABLE),
    ],
)
async def test_all_else_is_no_answer(answer: bytes, kind: FaultKind) -> None:
    assert await failed(answer) is kind


async def test_redirects_are_not_followed() -> None:
    async with serving(answering(raw(302, location="/else"))) as server, tools_for() as tools:
        with pytest.raises(ToolFailure):
            await tools.check(call(spec(server.url), account="a"))
    assert [seen.target for seen in server.seen] == [f"/payments/{KEY}"]


async def test_a_retry_after_is_passed_on() -> None:
    async with (
        serving(answering(raw(503, retry_after="7"))) as server,
        tools_for() as tools,
    ):
        with pytest.raises(ToolFailure) as raised:
            await tools.check(call(spec(server.url), account="a"))
    assert raised.value.fault.retry_after_us == 7_000_000


async def test_long_outputs_are_cut_as_those_of_calls() -> None:
    status = await said(raw(200, b"a" * 6_000_000, content_type="text/plain"))
    assert status.happened is True
    assert isinstance(status.output, str)
    assert len(status.output) < 70_000
    assert "truncated" in status.output


async def test_a_silent_server_is_a_timeout() -> None:
    def silent(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        """Say nothing."""

    async with serving(silent) as server, tools_for() as tools:
        with pytest.raises(ToolFailure) as raised:
            await tools.check(call(spec(server.url), timeout_s=0.1, account="a"))
    assert classify(raised.value.fault) is FaultClass.TRANSIENT


async def test_private_addresses_are_guarded_as_for_calls() -> None:
    async with serving(answering(raw(404))) as server, tools_for(allow="10.0.0.0/8") as tools:
        with pytest.raises(ToolFailure) as raised:
            await tools.check(call(spec(server.url), account="a"))
    assert raised.value.fault.kind is FaultKind.PERMISSION
    assert server.seen == []


async def test_what_may_not_be_sent_any_more_is_withheld() -> None:
    async with serving(answering(raw(404))) as server, tools_for() as tools:
        request = replace(call(spec(server.url), account="a"), may_send=lambda: False)
        with pytest.raises(Withheld):
            await tools.check(request)
    assert server.seen == []


async def test_a_tool_without_a_check_cannot_be_asked() -> None:
    async with tools_for() as tools:
        plain = replace(spec("https://bank.test"), status_check=None)
        with pytest.raises(ToolFailure, match="has no status check"):
            await tools.check(call(plain, account="a"))


async def test_a_tool_of_the_client_is_never_run_here() -> None:
    async with tools_for() as tools:
        theirs = replace(spec("https://bank.test"), kind=ToolKind.CLIENT, http=None)
        with pytest.raises(ToolFailure) as raised:
            await tools.run(call(theirs, account="a"))
    assert (raised.value.fault.kind, raised.value.fault.sent) == (FaultKind.INTERNAL, False)


def problems(wrong: dict[str, Json]) -> dict[str, str]:
    with pytest.raises(DefinitionError) as raised:
        parse(wrong)
    return {problem.pointer: problem.message for problem in raised.value.errors}


@pytest.mark.parametrize(
    ("check", "pointer"),
    [
        ({"url": "https://bank.test/payments"}, "/status_check"),
        ({"url": "https://bank.test/{idempotency_kay}"}, "/status_check/url"),
        ({"url": "https://{idempotency_key}.test/"}, "/status_check/url"),
        ({"url": ""}, "/status_check/url"),
        ({"method": "DELETE"}, "/status_check/method"),
        ({"headers": {"Idempotency-Key": "x"}}, "/status_check/headers/Idempotency-Key"),
        ({"query": {"k": "{nope}"}}, "/status_check/query/k"),
        ({"extra": 1}, "/status_check/extra"),
    ],
)
def test_a_check_that_cannot_work_is_refused(check: dict[str, Json], pointer: str) -> None:
    assert pointer in problems(body(**check))


def test_only_calls_over_http_can_be_looked_up() -> None:
    client = {key: value for key, value in body().items() if key != "http"}
    found = problems({**client, "kind": "client"})
    assert "does not belong to a tool of kind 'client'" in found["/status_check"]


def test_what_is_shown_can_be_registered_again() -> None:
    made = parse(body(query={"a": "{account}"}, headers={"X": "y"}, body=None)).spec
    shown = describe(made)
    assert shown["status_check"] == {
        "method": "GET",
        "url": "https://bank.test/payments/{idempotency_key}",
        "query": {"a": "{account}"},
        "headers": {"X": "y"},
        "body": None,
    }
    again = {key: value for key, value in shown.items() if key not in {"version", "alias"}}
    assert parse(again).spec == made


def warnings(definition: dict[str, Json]) -> list[str]:
    return [w for w in parse(definition).lint.warnings if w.startswith("/status_check")]


def test_lint_says_where_a_check_is_of_little_use() -> None:
    assert warnings(body()) == []
    (idle,) = warnings({**body(), "effect": "idempotent"})
    assert "never asked" in idle
    (vague,) = warnings(body(url="https://bank.test/{account}"))
    assert "cannot be told apart" in vague
    (open_path,) = warnings(body(url="https://bank.test/{amount}/{idempotency_key}"))
    assert "'amount' stands in its path but is not required" in open_path
    named: Json = {"properties": {"idempotency_key": {"description": "Ours"}}}
    (hidden,) = warnings({**body(), "parameters": named})
    assert "not the parameter" in hidden
