"""What a session takes up, and what is written for it: linear in its steps. Prints the figures.

`pytest -s tests/integration/test_storage_growth.py`; docs/retention.md holds them.
"""

import json
import random
import string
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.integration.client import Client
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, call, text
from tests.scripted.history import Body
from tests.scripted.http import Request, Server, response
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far

RESULT = 10_000
PER_TURN = 50
LIMITS = {"max_steps": 100, "token_budget": 10_000_000, "total_timeout_s": 600}
_CHANCE = random.Random(126)
_PARTS = ("events", "snapshots", "inbox", "sessions")


def plan(request: Body, _n: int) -> Answer:
    """Fetch as often as the last message says, something else each time."""
    last = next(m["content"] for m in reversed(request["messages"]) if m["role"] == "user")
    steps, done = int(last.split()[1]), len(results_so_far(request))
    if done < steps:
        return call("fetch", call_id=f"c{done}", page=done, of=last)
    return text("done")


def fetched(_request: Request) -> Iterator[bytes]:
    letters = "".join(_CHANCE.choices(string.ascii_letters + " ", k=RESULT - 12))
    yield response(200, json.dumps({"text": letters}).encode())


@dataclass(frozen=True, slots=True)
class Spent:
    """What all has been written so far: on the disk, to the WAL, and to Redis, in bytes."""

    disk: int
    wal: int
    redis: int


@dataclass(frozen=True, slots=True)
class Size:
    """What a session takes up, and what it cost to write it; in bytes for each step."""

    steps: int
    parts: dict[str, float]
    disk: float
    wal: float
    redis: float

    @property
    def live(self) -> float:
        return sum(self.parts.values())

    def line(self) -> str:
        parts = " ".join(f"{name} {size:,.0f}" for name, size in self.parts.items())
        return (
            f"{self.steps} steps: live {self.live:,.0f} B a step ({self.live / RESULT:.2f} x):"
            f" {parts}; on disk {self.disk:,.0f},"
            f" written to the WAL {self.wal:,.0f}, to Redis {self.redis:,.0f}"
        )


@asynccontextmanager
async def standing(stacks: Stacks, tmp_path: Path) -> AsyncIterator[tuple[Stack, Client]]:
    async with ScriptedModel(plan, keep_requests=False) as model, Server(fetched) as server:
        models = tmp_path / "models.json"
        config = {
            "name": "wide",
            "protocol": "openai",
            "base_url": model.base_url,
            "context_window": 10_000_000,
        }
        models.write_text(json.dumps({"models": [config]}))
        async with stacks.open(env={"SUREFOOT_MODELS_FILE": str(models)}) as stack:
            client = stack.client(await stack.start("all"))
            schema = {"page": {"type": "integer"}, "of": {"type": "string"}}
            fetch = {
                "name": "fetch",
                "kind": "http",
                "description": "Fetches a page.",
                "parameters": {"type": "object", "properties": schema, "required": ["page", "of"]},
                "http": {"method": "GET", "url": f"{server.root}/fetch"},
                "effect": "read",
                "result": {"max_chars": 20_000},
            }
            await client.register(fetch)
            yield stack, client


async def _spent(stack: Stack) -> Spent:
    await stack.rows("checkpoint")
    sizes = " + ".join(f"pg_total_relation_size('{name}')" for name in _PARTS)
    (row,) = await stack.rows(
        f"select ({sizes})::bigint as disk, pg_current_wal_lsn() - '0/0' as wal"
    )
    async with Redis.from_url(stack.env["SUREFOOT_REDIS_URL"]) as redis:
        stats = await redis.info("stats")
    return Spent(row["disk"], int(row["wal"]), stats["total_net_input_bytes"])


async def measured(stack: Stack, client: Client, steps: int) -> Size:
    """Run a session of so many steps and return what it takes up."""
    before = await _spent(stack)
    in_turn = min(steps, PER_TURN)
    body = {"limits": LIMITS, "model": "wide"}
    session_id = await client.create(f"fetch {in_turn} pages", **body)
    session = await client.settled(session_id, timeout_s=90)
    for turn in range(2, steps // in_turn + 1):
        told = {"text": f"fetch {in_turn} pages, {turn}"}
        await client.post(f"/v1/sessions/{session_id}/messages", told, expect=202)
        session = await client.settled(session_id, timeout_s=90)
        assert (session["status"], session["turn"]) == ("completed", turn), session
    assert session["usage"]["tool_calls"] == steps
    after = await _spent(stack)
    parts = {}
    for name in _PARTS:
        column = "id" if name == "sessions" else "session_id"
        (row,) = await stack.rows(
            f"select coalesce(sum(pg_column_size(t.*)), 0)::bigint as size from {name} t"
            f" where {column} = $1",
            session_id,
        )
        parts[name] = row["size"] / steps
    return Size(
        steps,
        parts,
        (after.disk - before.disk) / steps,
        (after.wal - before.wal) / steps,
        (after.redis - before.redis) / steps,
    )


@pytest.mark.slow
@pytest.mark.req("STATE-9")
@pytest.mark.case("C126")
async def test_storage_grows_with_the_steps_and_not_with_their_square(
    stacks: Stacks, tmp_path: Path
) -> None:
    """Twenty times the steps, and a step costs at most twice as much: with one snapshot, or none.

    What is written to Redis begins with the first hot state, so it is compared from 50 steps on.
    """
    async with standing(stacks, tmp_path) as (stack, client):
        few, some, many, most = [await measured(stack, client, n) for n in (10, 50, 100, 200)]
    for size in (few, some, many, most):
        print(size.line())
        assert size.live < 3 * RESULT
        assert size.wal < 4.5 * RESULT
        assert size.wal < 2.3 * few.wal
    assert most.live < 1.1 * many.live
    assert most.wal < 1.4 * some.wal
    assert most.redis < 1.5 * some.redis
