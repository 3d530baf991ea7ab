"""Redirects: checked again at each step, stripped of secrets elsewhere, never a second sending."""

import asyncio
from collections.abc import Sequence

import pytest

from app.core.events import EffectClass
from app.core.faults import FaultKind
from app.runtime.errors import ToolFailure
from app.tools.redirects import follow
from app.tools.templates import Outgoing, Target
from tests.tools.support import (
    ONCE,
    Handler,
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

_SECRETS = {"k": "s3cret-value"}
_HEADERS = {"X-Key": "{{secret:k}}", "Authorization": "Bearer x", "Cookie": "c=1", "X-Plain": "p"}


def redirecting(status: int, location: str) -> Handler:
    """Redirect /start, answer everything else."""

    def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        start = seen.target.startswith("/start")
        writer.write(raw(status, location=location) if start else json_answer('"there"'))

    return handle


@pytest.mark.req("TOOL-16")
@pytest.mark.case("C168")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest", "http://10.0.0.1/", "http://[::ffff:a00:1]/"]
)
async def test_a_redirect_inside_is_refused(status: int, location: str) -> None:
    async with serving(redirecting(status, location)) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url + "/start"))
    assert found.kind is FaultKind.PERMISSION
    assert found.sent


@pytest.mark.case("C168")
async def test_a_chain_that_ends_inside_is_refused_and_the_canary_not_hit() -> None:
    async def resolver(host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2" if host == "inside.test" else "127.0.0.1"]

    async with serving(answering(json_answer("1")), host="127.0.0.2") as canary:
        hops = [f"http://b.test:PORT/{n}" for n in range(2)]
        hops.append(f"http://inside.test:{canary.port}/")

        def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
            host, _, port = seen.headers["host"].partition(":")
            assert host
            writer.write(raw(302, location=hops.pop(0).replace("PORT", port)))

        async with (
            serving(handle) as server,
            tools_for(allow="127.0.0.1/32", resolver=resolver) as tools,
        ):
            found = await fault(tools, tool(f"http://a.test:{server.port}/"))
    assert found.kind is FaultKind.PERMISSION
    assert len(server.seen) == 3
    assert canary.connections == 0


@pytest.mark.case("C168", "C177")
async def test_secrets_do_not_go_to_another_origin() -> None:
    async with (
        serving(answering(json_answer("1"))) as other,
        serving(redirecting(302, f"{other.url}/x")) as server,
        tools_for(secrets=_SECRETS) as tools,
    ):
        spec = tool(server.url + "/start", headers=_HEADERS)
        assert (await run(tools, spec)).output == 1
    assert server.seen[0].headers["x-key"] == "s3cret-value"
    headers = other.seen[0].headers
    assert not {"x-key", "authorization", "cookie"} & headers.keys()
    assert headers["x-plain"] == "p"


async def test_secrets_stay_at_the_same_origin() -> None:
    async with (
        serving(redirecting(302, "/there?x=1")) as server,
        tools_for(secrets=_SECRETS) as tools,
    ):
        spec = tool(server.url + "/start", headers=_HEADERS)
        assert (await run(tools, spec)).output == "there"
    assert server.seen[1].target == "/there?x=1"
    assert server.seen[1].headers["x-key"] == "s3cret-value"


@pytest.mark.case("C168")
async def test_a_body_does_not_go_to_another_origin() -> None:
    async with (
        serving(answering(json_answer("1"))) as other,
        serving(redirecting(307, other.url)) as server,
        tools_for() as tools,
    ):
        spec = tool(server.url + "/start", method="POST", effect="idempotent")
        found = await fault(tools, spec)
    assert found.kind is FaultKind.PERMISSION
    assert other.connections == 0


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize(
    ("method", "status"), [("POST", 307), ("POST", 308), ("POST", 301), ("GET", 307)]
)
async def test_once_is_not_made_again_by_a_redirect(method: str, status: int) -> None:
    async with serving(redirecting(status, "/there")) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url + "/start", method=method, effect=ONCE))
    assert found.kind is FaultKind.PERMISSION
    assert len(server.seen) == 1


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("POST", 303), ("POST", 302)])
async def test_once_is_followed_where_only_an_answer_is_fetched(method: str, status: int) -> None:
    async with serving(redirecting(status, "/there")) as server, tools_for() as tools:
        spec = tool(server.url + "/start", method=method, effect=ONCE)
        assert (await run(tools, spec)).output == "there"
    assert (server.seen[1].method, server.seen[1].body) == ("GET", b"")


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize("status", [302, 303])
@pytest.mark.parametrize("receipt", [403, 404, 410, 429, 302])
async def test_a_once_call_that_was_taken_is_unknown_when_its_receipt_cannot_be_read(
    status: int, receipt: int
) -> None:
    def handle(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(status if seen.method == "POST" else receipt, location="/receipt"))

    async with serving(handle) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url + "/pay", method="POST", effect=ONCE))
    assert (found.kind, found.sent) == (FaultKind.UNKNOWN_OUTCOME, True)
    assert [seen.method for seen in server.seen].count("POST") == 1


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize("location", ["http://10.0.0.1/receipt", "ftp://shop.test/receipt", "//:x"])
async def test_a_once_call_that_was_taken_is_unknown_when_its_receipt_is_out_of_reach(
    location: str,
) -> None:
    async with serving(redirecting(303, location)) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url + "/start", method="POST", effect=ONCE))
    assert (found.kind, found.sent) == (FaultKind.UNKNOWN_OUTCOME, True)


async def test_other_effects_keep_method_body_and_key_on_307() -> None:
    async with serving(redirecting(307, "/there")) as server, tools_for() as tools:
        spec = tool(
            server.url + "/start/{a}", method="PUT", effect="idempotent", properties=["a", "b"]
        )
        await run(tools, spec, a="x", b=1)
    first, second = server.seen
    assert (second.method, second.target, second.body) == ("PUT", "/there", b'{"b":1}')
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


async def test_redirects_end() -> None:
    async with serving(redirecting(302, "/start")) as server, tools_for() as tools:
        found = await fault(tools, tool(server.url + "/start"))
    assert found.kind is FaultKind.PERMISSION
    assert "more than 5 times" in found.message
    assert len(server.seen) == 6


def outgoing(scheme: str = "https", method: str = "GET") -> Outgoing:
    target = Target(scheme, "a.test", "/x/y", "q=1")
    return Outgoing(method, target, (("authorization", "b"),), b"")


@pytest.mark.case("C168")
@pytest.mark.parametrize(
    "location",
    [
        "http://a.test/",
        "ftp://a.test/",
        "file:///etc/passwd",
        "javascript:x",
        "https://user:pw@a.test/",
        "https://a.test:0/",
        "https://a.test:99999/",
        "https://[::1/",
    ],
)
def test_places_that_are_never_followed_to(location: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        follow(outgoing(), 302, {"location": location}, EffectClass.READ)
    assert failure.value.fault.kind is FaultKind.PERMISSION


@pytest.mark.parametrize(
    ("location", "authority", "resource", "kept"),
    [
        ("z", "a.test", "/x/z", True),
        ("//A.test:443/z#f", "A.test:443", "/z", True),
        ("https://b.test/ü?a=b c", "b.test", "/%C3%BC?a=b%20c", False),
        ("https://a.test:8443/", "a.test:8443", "/", False),
    ],
)
def test_locations_are_resolved(location: str, authority: str, resource: str, kept: object) -> None:
    moved = follow(outgoing(), 302, {"location": location}, EffectClass.READ)
    assert (moved.target.authority, moved.target.resource) == (authority, resource)
    assert ("authorization" in dict(moved.headers)) == kept


def test_http_to_https_is_another_origin() -> None:
    moved = follow(outgoing("http"), 301, {"location": "https://a.test/"}, EffectClass.READ)
    assert moved.headers == ()
