"""The floor service: the least that deserves the name, to measure ours against.

FastAPI, aiohttp and asyncpg. The loop runs inside the request and commits each step to Postgres in
a transaction of its own. No queue, no trace, no resume, no guard: when it dies, the session is
lost. Its POST looks like ours: `Prefer: wait` or `Accept: text/event-stream`.
"""

import argparse
import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel

from tests.bench.agent import Ask, Json, run
from tests.bench.loops import over_aiohttp

_SCHEMA = """
create table sessions (
    id uuid primary key, task text not null, status text not null, result text,
    created_at timestamptz not null default now(), ended_at timestamptz
);
create table steps (
    session_id uuid not null references sessions, seq int not null, kind text not null,
    data bytea not null, at timestamptz not null default now(), primary key (session_id, seq)
);
"""
EVENTS = 7
"""What its stream brings: the start, five steps, the end."""

_encode = msgspec.json.encode
Emit = Callable[[str, int | None, Json], Awaitable[None]]


class NewSession(BaseModel):
    """The body of the POST."""

    task: str


class Floor:
    """Runs sessions and commits their steps."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", ask: Ask) -> None:
        """Keep the two connections."""
        self._pool = pool
        self._ask = ask

    async def run(self, task: str, emit: Emit) -> Json:
        """Run a session to its end; every step is committed before the next begins."""
        session_id = uuid.uuid4()
        await self._pool.execute(
            "insert into sessions (id, task, status) values ($1, $2, 'running')", session_id, task
        )
        await emit("session.created", 1, {"session_id": str(session_id)})
        usage = {"model_calls": 0, "tool_calls": 0, "input_tokens": 0, "output_tokens": 0}
        seq = 1

        async def on_step(kind: str, data: Json) -> None:
            nonlocal seq
            seq += 1
            usage["model_calls"] += 1
            usage["tool_calls"] += len(data["calls"])
            usage["input_tokens"] += data["usage"]["prompt_tokens"]
            usage["output_tokens"] += data["usage"]["completion_tokens"]
            await self._pool.execute(
                "insert into steps (session_id, seq, kind, data) values ($1, $2, $3, $4)",
                *(session_id, seq, kind, _encode(data)),
            )
            await emit(kind, seq, data)

        async def on_text(piece: str) -> None:
            await emit("delta", None, {"text": piece})

        answer = await run(self._ask, task, on_step=on_step, on_text=on_text)
        await self._pool.execute(
            "update sessions set status = 'completed', result = $2, ended_at = now() where id = $1",
            *(session_id, answer),
        )
        result: Json = {"status": "completed", "result": {"text": answer}, "usage": usage}
        await emit("turn.ended", seq + 1, result)
        return {"id": str(session_id), "object": "session", **result}


async def _silent(_kind: str, _seq: int | None, _data: Json) -> None:
    """Tell nobody."""


async def _stream(floor: Floor, task: str) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def emit(kind: str, seq: int | None, data: Json) -> None:
        head = f"event: {kind}\nid: {seq}\n" if seq is not None else f"event: {kind}\n"
        await queue.put(head.encode() + b"data: " + _encode(data) + b"\n\n")

    async def work() -> None:
        try:
            await floor.run(task, emit)
        finally:
            await queue.put(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        while (frame := await queue.get()) is not None:
            yield frame


def make_app(database: str, llm: str) -> FastAPI:
    """Return the service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with asyncpg.create_pool(database, max_size=10) as pool, over_aiohttp(llm) as ask:
            await pool.execute(_SCHEMA)
            app.state.floor = Floor(pool, ask)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/sessions")
    async def create(body: NewSession, request: Request) -> Response:
        floor: Floor = request.app.state.floor
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(_stream(floor, body.task), media_type="text/event-stream")
        return JSONResponse(await floor.run(body.task, _silent))

    @app.get("/readyz")
    async def ready() -> dict[str, Any]:
        return {"status": "ok"}

    return app


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    config = uvicorn.Config(
        make_app(given.database, given.llm),
        port=given.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
    with socket.create_server(("127.0.0.1", given.port)) as listening:
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
