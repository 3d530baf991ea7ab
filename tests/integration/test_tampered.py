"""What a master of the database changes is found by `audit verify`, over HTTP and as a command."""

import asyncio
import json
import sys
from dataclasses import dataclass

import pytest

from tests.integration.client import Json
from tests.integration.ground import Ground, standing
from tests.integration.process import ROOT
from tests.integration.stack import Stacks
from tests.integration.test_explained import forger
from tests.scripted.scripts import weather

_FORGE = "update events set seq = seq + {by} where session_id = $1 and seq > {after}"
_GONE = "delete from events where session_id = $1 and seq = 6"
_FLIPPED = """
update events set payload = set_byte(payload, 20, get_byte(payload, 20) # 1)
where session_id = $1 and seq = 4
"""
_SWAPPED = "update events set seq = case seq when 104 then 5 else 4 end where session_id = $1"
_DOUBLED = """
insert into events select session_id, 8, v, type, phase, turn, step, at, payload, hash
from events where session_id = $1 and seq = 7
"""
_CUT = """
delete from events where session_id = $1
and seq > (select max(seq) - 2 from events where session_id = $1)
"""
_COLUMN = "update events set {change} where session_id = $1 and seq = {seq}"
_EARLIER = "at = at - interval '1 day'"
_ROW = "update sessions set {change} where id = $1"


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to a session, and as what it is found at which event (-1: the last but one)."""

    statements: tuple[str, ...]
    fault: str | None = None
    seq: int | None = None


TAMPERED = {
    "untouched": Case(()),
    "a payload changed": Case((_FLIPPED,), "hash", 4),
    "a column changed": Case((_COLUMN.format(change="step = 9", seq=5),), "index", 5),
    "a time changed": Case((_COLUMN.format(change=_EARLIER, seq=5),), "index", 5),
    "a version changed": Case((_COLUMN.format(change="v = 7", seq=3),), "hash", 3),
    "one removed": Case((_GONE,), "gap", 6),
    "one removed, the gap closed": Case(
        (_GONE, _FORGE.format(by=100, after=6), _FORGE.format(by=-101, after=100)), "hash", 6
    ),
    "two reordered": Case(
        (
            _FORGE.format(by=100, after=3),
            f"{_SWAPPED} and seq in (104, 105)",
            _FORGE.format(by=-100, after=100),
        ),
        *("hash", 4),
    ),
    "one doubled": Case(
        (_FORGE.format(by=100, after=7), _DOUBLED, _FORGE.format(by=-99, after=100)), "hash", 8
    ),
    "the end cut": Case((_CUT,), "cut", -1),
    "all cut": Case(("delete from events where session_id = $1",), "cut", 1),
    "the row's hash changed": Case((_ROW.format(change="head_hash = sha256(head_hash)"),), "cut"),
    "erased, then one removed": Case(
        (_ROW.format(change="data_key = ''::bytea, view = null"), _GONE), "gap", 6
    ),
}


async def _verify(ground: Ground, *options: str) -> tuple[int, str]:
    """Run the command as a user does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.main", "audit", "verify", *options),
        cwd=ROOT,
        env={**ground.stack.env, "SUREFOOT_URL": ground.process.url},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.req("STATE-8", "STATE-9")
async def test_each_is_found_where_it_is_and_nothing_else(stacks: Stacks) -> None:
    async with standing(stacks) as ground:
        runs = {name: await ground.run(weather) for name in TAMPERED}
        async with forger(ground.stack) as database:
            for name, case in TAMPERED.items():
                for statement in case.statements:
                    await database.execute(statement, runs[name].id)
        listed = (await ground.client.get("/v1/audit/verify?limit=100"))["data"]
        chains: dict[str, Json] = {chain["session"]: chain for chain in listed}
        code, out = await _verify(ground, "--json")
        told = [json.loads(line) for line in out.splitlines()]
        assert {one["session"]: one for one in told} == chains
        assert code == 4
        for name, case in TAMPERED.items():
            run, chain = runs[name], chains[runs[name].id]
            assert chain["intact"] is (case.fault is None), name
            if case.fault is not None:
                found = chain["broken"]
                seq = len(run.events) - 1 if case.seq == -1 else case.seq or found["seq"]
                assert (found["fault"], found["seq"]) == (case.fault, seq), (name, found)
        one = await ground.client.get(f"/v1/audit/verify?session={runs['one removed'].id}")
        assert (one["intact"], one["data"]) == (False, [chains[runs["one removed"].id]])
        assert (await _verify(ground, runs["untouched"].id))[0] == 0
        code, out = await _verify(ground, runs["two reordered"].id)
        assert (code, "broken at event 4 (hash)" in out) == (4, True)
