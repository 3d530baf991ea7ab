"""What was said is nowhere to be read but at the API: not in Postgres, Redis, logs or spans."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

import asyncpg
import pytest
from redis.asyncio import Redis

from app.runtime.ports.keys import WrappedKey
from app.runtime.sealing import Sealer
from app.storage.chain import BrokenLink, FaultOfChain, verify_chain
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from tests.integration.client import Client, Reader
from tests.integration.plans import sums
from tests.integration.stack import Stack, Stacks
from tests.otlp.receiver import receiver
from tests.scripted.answers import Answer, args, call, calls, tc, text
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import results_so_far
from tests.scripted.tools import ScriptedTools

WORD = "xanthophyll-4711"
ADMIN = "admin-canary-0123456789"
STEPS = sums(30)
"""So many that a snapshot is saved on the way: 256 events."""


def _plan(request: Body, _n: int) -> Answer:
    """Echo the word, calculate long enough for a snapshot, echo it again, and say it."""
    done = len(results_so_far(request))
    if done in {0, len(STEPS) + 1}:
        return call("echo", call_id=f"e{done}", text=f"{WORD} {done}")
    if done <= len(STEPS):
        name, arguments = STEPS[done - 1]
        return calls(tc(f"c{done}", name, args(**arguments)), reasoning=f"thinking of {WORD}")
    return text(f"It is {WORD}.")


async def _rows(stack: Stack) -> dict[str, list[str]]:
    """Return every row of every table as text; bytes stand in hex."""
    tables = await stack.rows("select tablename from pg_tables where schemaname = 'public'")
    return {
        name: [row["t"] for row in await stack.rows(f'select t::text as t from "{name}" t')]
        for (name,) in tables
    }


def _holds(texts: Iterable[str], word: str) -> bool:
    forms = (word, word.encode().hex(), word.encode("utf-16-le").hex())
    return any(form in one for one in texts for form in forms)


@asynccontextmanager
async def _published(url: str) -> AsyncIterator[list[bytes]]:
    """Gather what is published, until the end of the block."""
    heard: list[bytes] = []
    redis = Redis.from_url(url)
    listener = redis.pubsub()
    await listener.psubscribe("*")
    while (await listener.get_message(timeout=5)) is None:
        continue
    try:
        yield heard
        while (message := await listener.get_message(timeout=0.2)) is not None:
            if message["type"] == "pmessage":
                heard.append(message["channel"] + b" " + message["data"])
    finally:
        await listener.aclose()  # type: ignore[no-untyped-call]
        await redis.aclose()


async def _keys(url: str) -> dict[bytes, bytes]:
    redis = Redis.from_url(url)
    try:
        found = [key async for key in redis.scan_iter()]
        return {key: cast("bytes", await redis.dump(key)) for key in found}
    finally:
        await redis.aclose()


@pytest.mark.req("STATE-5", "STATE-3")
async def test_the_stores_hold_no_plain_content(stacks: Stacks) -> None:
    async with (
        _published(stacks.redis_url) as heard,
        ScriptedModel(_plan) as model,
        ScriptedTools() as tools,
        stacks.open(model=model.base_url, env={"SUREFOOT_LOG_LEVEL": "debug"}) as stack,
    ):
        process = await stack.start("all")
        client = stack.client(process)
        await client.register(*tools.specs())
        hold = tools.hold_before("echo")
        made = await client.http.post(
            "/v1/sessions",
            json={
                "task": f"Say {WORD}.",
                "metadata": {"for": WORD},
                "limits": {"max_steps": 50, "token_budget": 1_000_000},
            },
            headers={"Idempotency-Key": "once"},
        )
        session_id = made.json()["id"]
        reader = Reader(session_id, lambda: [process.url])
        await hold.reached()
        queued = {"text": f"And {WORD}.", "when_busy": "enqueue"}
        path = f"/v1/sessions/{session_id}/messages"
        await client.http.post(path, json=queued, headers={"Idempotency-Key": "twice"})
        hold.release()
        await reader.run()
        events = await client.events(session_id)
        assert [e["type"] for e in events].count("turn.ended") == 2
        # Whoever asks the API reads it: all of this is somewhere in the stores.
        told = json.dumps(events)
        assert told.count(WORD) > 10
        assert [frame.data for frame in reader.durable] == events
        rows, keys = await _rows(stack), await _keys(stacks.redis_url)
        logged = process.text()
    for table in ("sessions", "events", "inbox", "idempotency", "snapshots"):
        assert rows[table], table
        assert _holds(rows[table], session_id), table
    assert [name for name, texts in rows.items() if _holds(texts, WORD)] == []
    assert any(session_id.encode() in key for key in keys), "no hot state was kept"
    assert any(session_id.encode() in message for message in heard)
    for where in (*heard, *keys, *keys.values()):
        assert WORD.encode() not in where
    assert session_id in logged
    assert WORD not in logged


@pytest.mark.req("STATE-5", "API-2", "API-3", "SAFE-4")
@pytest.mark.case("C165")
async def test_content_is_for_who_has_the_key(stacks: Stacks) -> None:
    """The key is in no log, and neither a stream nor a page is had without it."""
    env = {"SUREFOOT_AUTH": "on", "SUREFOOT_ADMIN_KEY": ADMIN, "SUREFOOT_LOG_LEVEL": "debug"}
    async with (
        ScriptedModel(lambda *_: text(f"It is {WORD}.")) as model,
        stacks.open(model=model.base_url, env=env) as stack,
    ):
        process = await stack.start("all")
        client = _with_key(stack.client(process))
        session_id = await client.create(f"Say {WORD}.")
        session = await client.settled(session_id)
        assert WORD in session["result"]["text"]
        assert WORD in json.dumps(await client.events(session_id))
        stream = (await client.http.get(f"/v1/sessions/{session_id}/stream?after=0")).text
        assert f"It is {WORD}." in stream
        other = stack.client(process)
        for path in ("", "/events", "/stream", "/stream?key=" + ADMIN):
            refused = await other.http.get(f"/v1/sessions/{session_id}{path}")
            assert refused.status_code == 401
            assert WORD not in refused.text
        assert ADMIN not in process.text()
        assert WORD not in process.text()


def _with_key(client: Client) -> Client:
    client.http.headers["Authorization"] = f"Bearer {ADMIN}"
    return client


@pytest.mark.req("STATE-5", "OBS-1")
@pytest.mark.case("C145")
@pytest.mark.parametrize("asked", ["", "true"])
async def test_content_is_in_spans_only_when_asked_for_and_sensitive_arguments_never(
    stacks: Stacks, asked: str
) -> None:
    card = "4111-canary-1111"

    def plan(request: Body, _n: int) -> Answer:
        return text("done") if results_so_far(request) else call("echo", text=card)

    async with (
        receiver() as collector,
        ScriptedModel(plan) as model,
        ScriptedTools() as tools,
        stacks.open(
            model=model.base_url,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "20",
                "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": asked,
                "SUREFOOT_LOG_LEVEL": "debug",
            },
        ) as stack,
    ):
        process = await stack.start("all")
        client = stack.client(process)
        await client.register({**tools.specs()[4], "sensitive": ["text"]})
        session = await client.settled(await client.create(f"Say {WORD}."))
        await collector.wait_for(lambda spans: any(s.parent_id is None for s in spans))
        assert session["status"] == "completed"
        assert card in json.dumps(await client.events(session["id"]))
        exported, logged = bytes(collector.raw), process.text()
    assert (WORD.encode() in exported) is bool(asked)
    assert card.encode() not in exported
    assert card not in logged
    assert WORD not in logged


@pytest.mark.req("STATE-8", "STATE-3")
async def test_what_a_run_left_is_chained_and_a_change_behind_our_back_is_found(
    stacks: Stacks,
) -> None:
    async with (
        ScriptedModel(lambda *_: text("done")) as model,
        stacks.open(model=model.base_url) as stack,
    ):
        client = stack.client(await stack.start("all"))
        session_id = await client.create("hello")
        session = await client.settled(session_id)
        assert await _verified(stack, session_id) is None
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await stack.rows("update events set step = 7 where seq = 3")
        stack.sound = False
        # As someone may who is master of the database: triggers off, one plain column changed.
        forger = await asyncpg.connect(stack.dsn)
        await forger.execute("set session_replication_role = replica")
        await forger.execute("update events set step = step + 1 where seq = 3")
        broken = await _verified(stack, session_id)
        assert broken is not None
        assert (broken.seq, broken.fault) == (3, FaultOfChain.INDEX)
        await forger.execute("update events set step = step - 1 where seq = 3")
        await forger.execute("delete from events where seq = $1", session["last_seq"])
        await forger.close()
        broken = await _verified(stack, session_id)
        assert broken is not None
        assert (broken.seq, broken.fault) == (session["last_seq"], FaultOfChain.CUT)


async def _verified(stack: Stack, session_id: str) -> BrokenLink | None:
    """Verify a journal as it stands in Postgres, with the master key of the processes."""
    (row,) = await stack.rows("select * from sessions where id = $1", session_id)
    keyring = MasterKeys(parse_keys(stack.env["SUREFOOT_ENCRYPTION_KEYS"]))
    cipher = keyring.unwrap(session_id, WrappedKey(row["key_id"], row["data_key"]))
    async with Engine(stack.dsn) as engine:
        events = await PostgresJournal(engine).read(session_id, 0, 500)
    return verify_chain(
        events,
        cipher,
        head=row["head"],
        head_hash=row["head_hash"],
        opener=Sealer(JsonCodec(), cipher).open,
    )
