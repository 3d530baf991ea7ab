"""HEAD: what GET would say, without saying it (RFC 9110, 9.3.2)."""

import httpx2
import pytest
from starlette.types import Message

from app.api.app import create_app
from tests.api.conftest import create, in_process, served
from tests.fakes.api_world import World

NONE = "ses_00000000000000000000000000"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions",
        "/v1/sessions/{id}",
        "/v1/sessions/{id}/events",
        f"/v1/sessions/{NONE}",
        "/v1/tools",
        "/v1/tools/calculate",
        "/v1/models",
        "/v1/nothing",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/docs",
    ],
)
async def test_head_says_what_get_says(client: httpx2.AsyncClient, path: str) -> None:
    url = path.format(id=await create(client))
    got, head = await client.get(url), await client.head(url)
    assert (head.status_code, dict(head.headers)) == (got.status_code, dict(got.headers))
    assert got.content
    assert head.content == b""


async def test_a_connection_goes_on_after_a_head(world: World) -> None:
    async with served(world) as (url, _), httpx2.AsyncClient(base_url=url) as client:
        for method in ("HEAD", "GET", "HEAD"):
            answer = await client.request(method, "/v1/models")
            assert answer.status_code == 200
            assert int(answer.headers["content-length"]) > 0


async def test_nobody_creates_anything_by_asking_for_headers(world: World) -> None:
    async with in_process(world) as client:
        await client.head("/v1/sessions")
        assert (await client.head("/v1/tools/calculate/invoke")).status_code == 405
    assert world.store.rows == {}


async def test_the_body_is_left_out_before_the_server_sees_it(world: World) -> None:
    """Clients and servers drop it too; an answer is right without them."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "HEAD", "path": "/v1/models", "headers": []}
    await create_app(world.services)({**scope, "query_string": b""}, receive, send)
    assert [message.get("body") for message in sent] == [None, b""]
    assert sent[0]["status"] == 200
