"""HTTP tools over real sockets: what is sent, what comes back, what a failure means."""

import asyncio
import gzip
import json
import ssl
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.core.canonical import Json
from app.core.faults import FaultKind, Hint
from app.runtime.errors import ToolFailure
from tests.tools.support import (
    NOW_US,
    ONCE,
    TRACE,
    Seen,
    answering,
    fault,
    json_answer,
    raw,
    run,
    serving,
    tool,
    tools_for,
)


async def output_of(answer: bytes) -> Json:
    async with serving(answering(answer)) as server, tools_for() as tools:
        return (await run(tools, tool(server.url))).output


@pytest.mark.req("TOOL-1", "TOOL-10")
async def test_a_call_carries_key_trace_and_agent() -> None:
    secrets = {"key": "s3cret-value"}
    async with (
        serving(answering(json_answer('{"t":12}'))) as server,
        tools_for(secrets=secrets) as tools,
    ):
        spec = tool(
            server.url + "/w/{city}",
            method="POST",
            properties=["city", "n"],
            headers={"X-Key": "{{secret:key}}"},
        )
        reply = await run(tools, spec, city="São Paulo", n=1)
    assert reply.output == {"t": 12}
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == ("POST", "/w/S%C3%A3o%20Paulo", b'{"n":1}')
    assert seen.headers["idempotency-key"] == "ses_1:t1_c1_0"
    assert seen.headers["traceparent"] == TRACE
    assert seen.headers["user-agent"] == "surefoot/9.9"
    assert seen.headers["x-key"] == "s3cret-value"
    assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (json_answer("[1, 2.5]"), [1, 2.5]),
        (raw(200, b'{"a":1}', content_type="application/problem+json; charset=utf-8"), {"a": 1}),
        (raw(200, b'{"a":1}'), {"a": 1}),
        (raw(200, b'{"a":1}', content_type="text/plain"), '{"a":1}'),
        (json_answer("{'a': 1}"), "{'a': 1}"),
        (raw(200, b"\xef\xbb\xbfhi", content_type="text/plain"), "hi"),
        (raw(200, b"caf\xe9", content_type="text/html; charset=latin-1"), "café"),
        (raw(200, b"x", content_type="text/plain; charset=nonsense"), "x"),
        (raw(200, b"x", content_type="text/plain; charset=idna"), "x"),
        (raw(200, b"x", content_type="text/plain; charset=undefined"), "x"),
        (raw(200, b"\\x41", content_type="text/plain; charset=unicode_escape"), "\\x41"),
        (raw(200, b"a-" + b"9" * 30, content_type="text/plain; charset=punycode"), "a-" + "9" * 30),
        (raw(204), None),
        (raw(200, content_type="application/json"), None),
        (raw(200, gzip.compress(b'{"a":1}', mtime=0), content_encoding="gzip"), {"a": 1}),
    ],
)
async def test_bodies_become_values(answer: bytes, output: Json) -> None:
    assert await output_of(answer) == output


@pytest.mark.case("C099")
async def test_bytes_become_type_and_size() -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    assert await output_of(raw(200, png, content_type="image/png")) == {
        "type": "image/png",
        "size": 16,
    }
    assert await output_of(raw(200, png)) == {"type": "application/octet-stream", "size": 16}
    assert await output_of(raw(200, b"ab\xff\xfec", content_type="text/plain")) == "ab\ufffd\ufffdc"
    packed = raw(200, b"\x1f\x8bbroken", content_type="text/plain", content_encoding="gzip")
    assert await output_of(packed) == {"type": "text/plain", "size": 8}


@pytest.mark.case("C100")
async def test_a_cut_data_url_stays_text() -> None:
    text = '{"src":"data:image/gif;base64,R0lGODlhAQABAIA"}'
    assert await output_of(json_answer(text)) == json.loads(text)


@pytest.mark.case("C116", "C118", "C120")
async def test_values_that_json_or_postgres_refuse_are_replaced() -> None:
    text = '{"a":NaN,"b":[Infinity,-Infinity],"c":1e400,"d":"x\\u0000\\udf78","e\\u0000":1}'
    output = await output_of(json_answer(text))
    assert output == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "c": "1e400",
        "d": "x\ufffd\ufffd",
        "e\ufffd": 1,
    }
    json.dumps(output, allow_nan=False).encode()
    assert await output_of(raw(200, b"a\0b", content_type="text/plain")) == "a\ufffdb"
    assert await output_of(json_answer("9" * 40)) == "9" * 40


@pytest.mark.case("C175")
async def test_json_nested_without_end_stays_text() -> None:
    text = "[" * 5000 + "]" * 5000
    assert await output_of(json_answer(text)) == text


@pytest.mark.req("TOOL-12")
@pytest.mark.case("C097", "C149")
async def test_a_huge_result_is_cut_for_the_model_and_for_the_journal() -> None:
    big = raw(200, b"a" * 3_000_000, content_type="text/plain")
    async with serving(answering(big)) as server, tools_for() as tools:
        reply = await run(tools, tool(server.url))
    assert reply.content == "a" * 2000 + "… [truncated: 2,000 of 3,000,000 characters shown]"
    assert isinstance(reply.output, str)
    assert reply.output.endswith("of 3,000,000 characters kept]")
    assert len(json.dumps(reply.output).encode()) <= 64 * 1024


async def test_more_than_is_read_is_said() -> None:
    big = raw(200, b"[" + b"1," * 3_000_000 + b"1]", content_type="application/json")
    async with serving(answering(big)) as server, tools_for() as tools:
        reply = await run(tools, tool(server.url, max_chars=10))
    assert reply.content == "[1,1,1,1,1… [truncated: 10 of more than 5,000,000 characters shown]"


@pytest.mark.req("TOOL-8", "TOOL-9")
@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, FaultKind.INVALID_ARGS, Hint.FIX_ARGUMENTS),
        (401, FaultKind.PERMISSION, Hint.ESCALATE),
        (403, FaultKind.PERMISSION, Hint.ESCALATE),
        (404, FaultKind.NOT_FOUND, Hint.OTHER_TOOL),
        (405, FaultKind.INTERNAL, Hint.OTHER_TOOL),
        (409, FaultKind.CONFLICT, Hint.OTHER_TOOL),
        (413, FaultKind.INVALID_ARGS, Hint.SMALLER_SCOPE),
        (422, FaultKind.INVALID_ARGS, Hint.FIX_ARGUMENTS),
        (429, FaultKind.RATE_LIMITED, Hint.TRY_LATER),
        (500, FaultKind.UNAVAILABLE, Hint.TRY_LATER),
        (503, FaultKind.UNAVAILABLE, Hint.TRY_LATER),
    ],
)
async def test_statuses_are_faults(status: int, kind: FaultKind, hint: Hint) -> None:
    answer = raw(status, b'{"detail":"no such city"}', content_type="application/json")
    async with serving(answering(answer)) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url))
    assert (found.kind, found.retry_hint, found.sent) == (kind, hint, True)
    assert f"HTTP {status}" in found.message
    assert ("no such city" in found.message) == (status < 500)


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("text/html", "<h1>Oops</h1>"),
        ("text/plain", "Traceback (most recent call last):\n  File x"),
        ("application/octet-stream", "\x00\x01"),
        ("application/json", ""),
    ],
)
async def test_pages_and_stack_traces_do_not_reach_the_model(content_type: str, text: str) -> None:
    answer = raw(400, text.encode(), content_type=content_type)
    async with serving(answering(answer)) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url))
    assert "It said" not in found.message
    assert len(found.message) < 200


@pytest.mark.parametrize(
    ("stated", "wait_s"),
    [
        ("3", 3),
        ("0.5", 0.5),
        (format_datetime(datetime.fromtimestamp(NOW_US / 1e6 + 2, UTC), usegmt=True), 2),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("soon", None),
        ("nan", None),
    ],
)
async def test_retry_after_is_honoured(stated: str, wait_s: float | None) -> None:
    async with serving(answering(raw(429, retry_after=stated))) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url))
    assert found.retry_after_us == (None if wait_s is None else wait_s * 1_000_000)


@pytest.mark.req("TOOL-10")
async def test_what_was_never_sent_says_so() -> None:
    async with serving(answering(b"")) as server:
        closed = server.port

    async def resolver(_host: str, _port: int) -> list[str]:
        raise OSError("no such host")

    async with tools_for(resolver=resolver) as tools:
        refused = await fault(tools, tool(f"http://127.0.0.1:{closed}/", effect=ONCE))
        unknown = await fault(tools, tool("http://surefoot.test/", effect=ONCE))
    for found in (refused, unknown):
        assert (found.kind, found.sent) == (FaultKind.UNAVAILABLE, False)


class Silence:
    """A server that never answers, and tells when it was asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, _seen: Seen, _writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def _reset(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _half(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    writer.close()


def _garbage(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x15\x03\x01 what\r\n\r\n")
    writer.close()


@pytest.mark.req("TOOL-10")
@pytest.mark.case("C085")
@pytest.mark.parametrize("handler", [_reset, _half, _garbage])
async def test_a_connection_that_breaks_after_sending_is_not_tried_again_here(
    handler: object,
) -> None:
    async with serving(handler) as server, tools_for() as tools:  # type: ignore[arg-type]
        found = await fault(tools, tool(server.url, method="POST", effect=ONCE))
    assert (found.kind, found.sent) == (FaultKind.UNAVAILABLE, True)
    assert len(server.seen) == 1


@pytest.mark.req("TOOL-10", "LOOP-9")
async def test_a_timeout_cuts_the_call_and_says_that_it_was_sent() -> None:
    async with serving(Silence()) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url, effect=ONCE), timeout_s=0.1)
    assert (found.kind, found.sent) == (FaultKind.TIMEOUT, True)
    assert "within 0.1 s" in found.message


async def test_a_trickle_does_not_hold_the_timeout_off() -> None:
    async def trickle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(0.01)

    async with serving(trickle) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url), timeout_s=0.15)
    assert found.kind is FaultKind.TIMEOUT


@pytest.mark.req("TOOL-10")
async def test_once_never_rides_on_a_connection_that_was_used_before() -> None:
    async with serving(answering(json_answer("1"))) as server, tools_for() as tools:
        for _ in range(3):
            await run(tools, tool(server.url, effect=ONCE))
        assert server.connections == 3
        for _ in range(3):
            await run(tools, tool(server.url, effect="read"))
        assert server.connections == 4


async def test_a_dropped_idle_connection_is_never_sent_on_twice() -> None:
    """The server closes after each answer without saying so, as it sees the next request."""
    answers = [json_answer("1")]

    def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        if answers:
            writer.write(answers.pop())
        else:
            writer.transport.abort()

    async with serving(handle) as server, tools_for() as tools:
        spec = tool(server.url, method="POST", effect="idempotent")
        await run(tools, spec)
        found = await fault(tools, spec)
    assert (found.kind, found.sent) == (FaultKind.UNAVAILABLE, True)
    assert len(server.seen) == 2


async def test_cancelling_from_outside_reaches_the_call() -> None:
    silence = Silence()
    async with serving(silence) as server, tools_for() as tools, asyncio.TaskGroup() as group:
        task = group.create_task(run(tools, tool(server.url)))
        await silence.asked.wait()
        task.cancel()
    assert task.cancelled()


@pytest.mark.case("C146")
async def test_a_secret_that_a_server_echoes_is_taken_out() -> None:
    def echo(seen: Seen, writer: asyncio.StreamWriter) -> None:
        text = json.dumps({"you": seen.headers["x-key"], "q": seen.target})
        status = 400 if seen.target.startswith("/bad") else 200
        writer.write(raw(status, text.encode(), content_type="application/json"))

    canary = 'sk-"canary"-1'
    async with serving(echo) as server, tools_for(secrets={"k": canary}) as tools:
        for path in ("/good", "/bad"):
            spec = tool(server.url + path, headers={"X-Key": "{{secret:k}}"})
            try:
                shown = str(await run(tools, spec))
            except ToolFailure as failure:
                shown = f"{failure} {failure.fault}"
            assert "[secret]" in shown
            assert "canary" not in shown


async def test_a_secret_that_is_missing_sends_nothing() -> None:
    async with serving(answering(json_answer("1"))) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url, headers={"X": "{{secret:k}}"}))
    assert (found.kind, found.sent, server.connections) == (FaultKind.PERMISSION, False, 0)


def _certificate(folder: Path, host: str) -> tuple[Path, ssl.SSLContext]:
    """Return a self-signed certificate's file, and a server context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2200, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "cert.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(built.public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return file, context


@pytest.mark.req("TOOL-10", "TOOL-16")
async def test_tls_checks_the_name_though_the_address_is_pinned(tmp_path: Path) -> None:
    file, server_side = _certificate(tmp_path, "good.test")
    trusted = ssl.create_default_context(cafile=str(file))

    async def resolver(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with (
        serving(answering(json_answer("1")), tls=server_side) as server,
        tools_for(resolver=resolver, tls=trusted) as tools,
    ):
        assert (await run(tools, tool(f"https://good.test:{server.port}/"))).output == 1
        found = await fault(tools, tool(f"https://evil.test:{server.port}/", effect=ONCE))
    assert (found.kind, found.sent) == (FaultKind.UNAVAILABLE, False)
    assert len(server.seen) == 1
