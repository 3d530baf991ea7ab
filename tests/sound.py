"""Whether the sessions in a database are sound: as `surefoot fsck` and a replay look at them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.core.replay import Divergence, Replay
from app.runtime.clock import SystemClock
from app.runtime.explaining.checkup import EVERY_EVENT, Checkup, Survey
from app.runtime.explaining.findings import Finding
from app.runtime.past import pages
from app.storage.audit import PostgresAudit
from app.storage.chain import Chains
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys


@asynccontextmanager
async def checkup(dsn: str, keys: str) -> AsyncIterator[Checkup]:
    """What looks at the sessions of this database, with these master keys."""
    async with Engine(dsn, lease_s=60, size=1) as engine:
        yield Checkup(
            audit=PostgresAudit(engine),
            chains=Chains(MasterKeys(parse_keys(keys)), JsonCodec()),
            journal=PostgresJournal(engine),
        )


async def findings(dsn: str, keys: str, *, recheck_s: float = 0.1) -> list[Finding]:
    """Return everything that does not hold."""
    async with checkup(dsn, keys) as looks:
        survey = Survey(checkup=looks, clock=SystemClock(), recheck_s=recheck_s)
        found = [finding async for finding in survey.all()]
        assert survey.tally.unopened == 0, "a session's master key is not the stack's"
        return found


async def divergences(dsn: str, keys: str) -> dict[str, Divergence]:
    """Return of each session that is not decided again as it was where that begins."""
    found: dict[str, Divergence] = {}
    async with checkup(dsn, keys) as looks:
        for session_id in await looks.audit.after("", EVERY_EVENT):
            row = await looks.audit.row(session_id)
            assert row is not None
            walk, run = looks.chains.walk(row.id, row.key), Replay()
            async for page in pages(looks.journal, row.id, row.head):
                run.take(walk.take(page))
            divergence = run.end().divergence
            if divergence is not None:
                found[session_id] = divergence
    return found
