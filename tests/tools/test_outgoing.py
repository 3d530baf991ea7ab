"""Messages to endpoints: the egress guard at registration and at each send, and no answer read."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from standardwebhooks.webhooks import Webhook

from app.runtime.side.webhook_records import Posted
from app.tools.egress import EgressGuard, Resolver, networks, system_resolver
from app.tools.outgoing import OutgoingPosts, sign
from tests.tools.support import _TLS, FixedClock, Seen, raw, serving

LOOPBACK = "127.0.0.0/8"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@asynccontextmanager
async def posts(
    *, allow: str = LOOPBACK, resolver: Resolver = system_resolver, timeout_s: float = 5
) -> AsyncIterator[OutgoingPosts]:
    made = OutgoingPosts(
        guard=EgressGuard(allow=networks(allow), resolver=resolver),
        clock=FixedClock(),
        version="1",
        timeout_s=timeout_s,
        tls=_TLS,
    )
    yield made
    await made.aclose()


def resolving(*answers: str) -> Resolver:
    """Answer with one address after the other, the last one for good."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return resolve


@pytest.mark.req("API-15")
def test_a_signature_verifies_with_the_library() -> None:
    body = '{"type":"turn.ended","data":{"text":"ü"}}'.encode()
    now_us = time.time_ns() // 1000
    headers = {
        "webhook-id": "dlv_1",
        "webhook-timestamp": str(now_us // 1_000_000),
        "webhook-signature": sign(SECRET, "dlv_1", now_us, body),
    }
    assert Webhook(SECRET).verify(body, headers)["type"] == "turn.ended"


async def test_what_is_sent_and_what_is_looked_at() -> None:
    def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(503, b"x" * 100_000, **{"retry-after": "120"}))

    async with serving(handle) as server, posts() as out:
        found = await out.post(server.url + "/a?b=c", {"webhook-id": "dlv_1"}, b"{}")
    assert found == Posted(503, None, 120.0)
    [seen] = server.seen
    assert (seen.method, seen.target, seen.body) == ("POST", "/a?b=c", b"{}")
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert seen.headers["webhook-id"] == "dlv_1"


@pytest.mark.case("C170")
@pytest.mark.req("TOOL-16", "API-15")
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://a.test/",
        "ftp://a.test/",
        "//a.test/",
        "a.test",
        "http://",
        "http://user:word@a.test/",
        "http://a.test/#part",
        "http://a.test:0/",
        "http://a.test:25/",
        "http://a.test:6379/",
        "http://a.test:99999/",
        "http://[::1/",
        "http://169.254.169.254/latest",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://10.1.2.3/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fd00::1]/",
        "http://1.2.3.4.5/",
        "http://a.test/\\@b",
        "http://a b/",
        "http://ä.test/",
        "http://a.test/" + "a" * 2048,
    ],
)
async def test_refused_at_registration_and_at_each_send(url: str) -> None:
    async with posts(resolver=resolving("93.184.215.14")) as out:
        assert await out.refusal(url)
        found = await out.post(url, {}, b"{}")
    assert found.status is None
    assert found.error


@pytest.mark.req("TOOL-16")
async def test_a_name_is_resolved_at_registration_if_it_can_be() -> None:
    async with posts(resolver=resolving("10.0.0.1")) as out:
        assert "may not reach" in str(await out.refusal("https://inside.test/"))
    async with posts(resolver=resolving("93.184.215.14")) as out:
        assert await out.refusal("https://outside.test/") is None

    async def nobody(_host: str, _port: int) -> Sequence[str]:
        raise OSError

    async with posts(resolver=nobody) as out:
        assert await out.refusal("https://later.test/") is None
        found = await out.post("https://later.test/", {}, b"{}")
    assert found == Posted(None, "later.test could not be resolved.")


@pytest.mark.case("C170")
@pytest.mark.req("TOOL-16")
async def test_a_name_that_turns_inside_is_refused_when_it_is_sent() -> None:
    def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(200))

    async with (
        serving(handle) as server,
        posts(allow="127.0.0.1/32", resolver=resolving("127.0.0.1", "127.0.0.2")) as out,
    ):
        url = f"http://turns.test:{server.port}/"
        assert await out.refusal(url) is None
        found = await out.post(url, {}, b"{}")
    assert "may not reach" in str(found.error)
    assert server.connections == 0


@pytest.mark.case("C170")
@pytest.mark.req("TOOL-16")
async def test_the_checked_address_is_the_one_a_message_goes_to() -> None:
    """The name moves inside right behind the check: it is not asked a second time."""
    asked: list[str] = []

    async def moving(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(204))

    async with (
        serving(handle) as server,
        posts(allow="127.0.0.1/32", resolver=moving) as out,
    ):
        url = f"http://rebind.test:{server.port}/"
        assert await out.post(url, {}, b"{}") == Posted(204)
        assert asked == ["rebind.test"]
        assert server.seen[0].headers["host"] == f"rebind.test:{server.port}"
        again = await out.post(url, {}, b"{}")
    assert "may not reach" in str(again.error)
    assert len(server.seen) == 1


@pytest.mark.case("C170")
@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(status, location=f"http://{seen.headers['host']}/inside"))

    async with serving(handle) as server, posts() as out:
        found = await out.post(server.url, {}, b"{}")
    assert found.status == status
    assert not found.ok
    assert "not followed" in str(found.error)
    assert len(server.seen) == 1


async def test_one_that_hangs_or_speaks_no_http_is_let_go() -> None:
    gone = asyncio.Event()

    async def hang(_seen: Seen, _writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    async with serving(hang) as server, posts(timeout_s=0.2) as out:
        found = await out.post(server.url, {}, b"{}")
        gone.set()
    assert found == Posted(None, "The endpoint gave no answer within 0.2 s.")

    def babble(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test ESMTP\r\n\r\n")

    async with serving(babble) as server, posts() as out:
        found = await out.post(server.url, {}, b"{}")
    assert found.error == "The endpoint cannot be reached, or does not answer in HTTP."
    async with posts() as out:  # the server is closed now
        found = await out.post(server.url, {}, b"{}")
    assert found.error == "The endpoint cannot be reached, or does not answer in HTTP."
