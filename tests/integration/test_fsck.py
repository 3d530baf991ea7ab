"""`surefoot fsck` on real sessions: silent on sound ones, also while they run; loud on faults."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import asyncpg
import httpx2
import pytest

from app.runtime.ports.keys import WrappedKey
from app.runtime.sealing import Sealer
from app.runtime.times import to_time
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys
from tests.integration.ground import Ground, standing
from tests.integration.process import ROOT
from tests.integration.stack import Stack, Stacks
from tests.scripted.scripts import weather
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Ran:
    """What the command said."""

    code: int
    out: str
    err: str

    @property
    def found(self) -> dict[str, list[str]]:
        """Return the invariants that do not hold, by session."""
        shown: dict[str, list[str]] = {}
        for finding in json.loads(self.out)["findings"]:
            assert finding["detail"]
            assert finding["todo"]
            shown.setdefault(finding["session"], []).append(finding["invariant"])
        return shown


async def fsck(stack: Stack, *options: str, **env: str) -> Ran:
    """Run the command as an operator does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.main", "fsck", *options),
        cwd=ROOT,
        env={**stack.env, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks, env={"SUREFOOT_AUDIT_S": "1"}) as made:
        yield made


async def test_a_sound_database_has_no_findings_while_it_works(ground: Ground) -> None:
    """Sessions end, begin and change hands while it looks."""
    client, stop = ground.client, asyncio.Event()
    ground.plans["busy"] = weather

    async def keep_busy() -> None:
        while not stop.is_set():
            await client.settled(await client.create("busy Is rain coming?"))

    async with asyncio.TaskGroup() as group:
        busy = [group.create_task(keep_busy()) for _ in range(3)]
        ran = await fsck(ground.stack, "--json")
        stop.set()
    assert all(task.done() for task in busy)
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["findings"] == []
    assert json.loads(ran.out)["sessions"] > 0


@pytest.mark.req("STATE-8", "STATE-10")
async def test_planted_faults_are_found_each_where_it_is(ground: Ground) -> None:
    stack = ground.stack
    stack.sound = False
    runs = [await ground.run(weather) for _ in range(7)]
    whole, stuck, facts, changed, left_open, ends, erased = [run.id for run in runs]
    opened = next(e["seq"] for e in runs[4].events if e["type"] == "tool.finished")
    database = await asyncpg.connect(stack.dsn)
    await database.execute("set session_replication_role = replica")
    for statement, session_id in (
        ("update sessions set status = 'active' where id = $1", stuck),
        ("update sessions set stop_reason = 'max_steps', step = 9 where id = $1", facts),
        ("update events set payload = payload || 'x' where session_id = $1 and seq = 4", changed),
        ("update events set type = 'turn.ended' where session_id = $1 and seq = 3", ends),
        ("update sessions set data_key = '', view = null where id = $1", erased),
    ):
        await database.execute(statement, session_id)
    await _without(stack, database, left_open, opened)
    await database.close()
    ran = await fsck(stack, "--json")
    assert ran.code == 1
    assert {key: sorted(set(value)) for key, value in ran.found.items()} == {
        stuck: ["facts", "owned"],
        facts: ["facts"],
        changed: ["chain"],
        left_open: ["calls"],
        ends: ["chain", "turn_ends"],
    }
    quick = await fsck(stack, "--quick", "--json")
    assert quick.found == {
        stuck: ["owned"],
        ends: ["turn_ends"],
    }
    one = await fsck(stack, "--session", changed)
    assert one.code == 1
    assert f"{changed} chain at event 4: hash" in one.out
    assert "→ The trail was changed" in one.out
    assert whole not in ran.found
    await _shown(ground, {"owned": 1, "turn_ends": 1, "head": 0, "inbox": 0})


async def _shown(ground: Ground, expected: dict[str, int]) -> None:
    """Wait until the auditor of the process shows it in its metrics."""

    async def shows() -> bool:
        async with httpx2.AsyncClient(base_url=ground.process.url) as http:
            metrics = (await http.get("/metrics")).text
        lines = [
            f'surefoot_invariant_violations{{invariant="{name}"}} {count:.1f}'
            for name, count in expected.items()
        ]
        return all(line in metrics for line in lines)

    await until(shows, timeout_s=60, what="the auditor has seen it")
    assert "invariant.broken" in ground.process.text()


async def _without(
    stack: Stack, database: "asyncpg.Connection[asyncpg.Record]", session_id: str, seq: int
) -> None:
    """Let a journal be as if a call had never been closed, sealed and chained with our own keys."""
    row = await database.fetchrow("select * from sessions where id = $1", session_id)
    assert row is not None
    keyring = MasterKeys(parse_keys(stack.env["SUREFOOT_ENCRYPTION_KEYS"]))
    cipher = keyring.unwrap(session_id, WrappedKey(row["key_id"], row["data_key"]))
    sealer = Sealer(JsonCodec(), cipher)
    async with Engine(stack.dsn) as engine:
        read = await PostgresJournal(engine).read(session_id, 0, 500)
    events = [sealer.open(one) for one in read if one.seq != seq]
    sealed = sealer.seal((replace(event, seq=n) for n, event in enumerate(events, 1)), b"")
    await database.execute("delete from events where session_id = $1", session_id)
    for e in sealed:
        await database.execute(
            "insert into events values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            *(session_id, e.seq, e.v, e.type, e.phase, e.turn, e.step),
            *(to_time(e.at_us), e.payload, e.hash),
        )
    await database.execute(
        "update sessions set head = $2, head_hash = $3 where id = $1",
        *(session_id, sealed[-1].seq, sealed[-1].hash),
    )


async def test_without_keys_it_says_what_it_did_not_look_at(ground: Ground) -> None:
    await ground.run(weather)
    ran = await fsck(ground.stack, SUREFOOT_ENCRYPTION_KEYS="")
    assert ran.code == 0
    assert "1 sessions, 0 findings" in ran.out
    assert "1 were not opened: SUREFOOT_ENCRYPTION_KEYS lacks their keys" in ran.out


async def test_what_keeps_it_from_looking_is_said_in_two_lines(ground: Ground) -> None:
    for options, env, said in (
        ((), {"SUREFOOT_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x"}, "cannot be read"),
        (("--session", "ses_0"), {}, "There is no session 'ses_0'"),
    ):
        ran = await fsck(ground.stack, *options, **env)
        assert (ran.code, ran.out, said in ran.err) == (2, "", True), ran
        assert "Traceback" not in ran.err
