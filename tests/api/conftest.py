"""A world of fakes, and a client for it: in-process, or over real sockets where they matter."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import uvicorn

from app.api.app import create_app
from app.api.connection import BoundedHead
from tests.fakes.api_world import World
from tests.waiting import until


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with made.running():
        yield made


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with in_process(world) as made:
        yield made


@asynccontextmanager
async def in_process(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=create_app(world.services), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as made:
        yield made


class Served(uvicorn.Server):
    """A server in the test's own loop; signals stay the test's."""

    def install_signal_handlers(self) -> None:
        """Leave them alone."""


@asynccontextmanager
async def served(world: World) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """Serve on a free port; the server is stopped at the end, if it is not already."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(world.services),
        http=BoundedHead,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = Served(config)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
        finally:
            world.draining.set()
            server.should_exit = True
            await running


async def create(client: httpx2.AsyncClient, task: str = "What is 6 x 7?") -> str:
    answer = await client.post("/v1/sessions", json={"task": task})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])
