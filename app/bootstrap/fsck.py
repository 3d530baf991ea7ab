"""`surefoot fsck`: every invariant of every session, from the database and the keys alone."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvloop
from pydantic import SecretStr

from app.bootstrap.service import settings_for
from app.runtime.clock import SystemClock
from app.runtime.errors import StoreRefused, StoreUnavailable
from app.runtime.explaining.checkup import Checkup, Survey
from app.runtime.explaining.findings import Finding
from app.settings import Settings, StartError
from app.storage.audit import PostgresAudit
from app.storage.chain import Chains
from app.storage.codec import JsonCodec
from app.storage.engine import Engine
from app.storage.journal import PostgresJournal
from app.storage.keys import MasterKeys, parse_keys

PATIENCE_S: Final = 120.0
"""For how long one question may take: nothing waits for this process, and it locks nothing."""


def fsck(session: str | None, *, as_json: bool, quick: bool) -> int:
    """Look at every session, or one; print what does not hold; return 1 when there is any."""
    return uvloop.run(_fsck(settings_for("fsck").settings, session, as_json=as_json, quick=quick))


@asynccontextmanager
async def surveying(settings: Settings, *, quick: bool) -> AsyncIterator[Survey]:
    """A survey of the configured database; without keys, of what can be seen without them."""
    keys = _plain(settings.encryption_keys)
    async with Engine(
        _plain(settings.database_url),
        lease_s=PATIENCE_S,
        size=2,
        pooled=settings.pooler == "transaction",
    ) as engine:
        masters = parse_keys(keys) if keys else {"": b"\0" * 32}  # opens nothing of anybody
        checkup = Checkup(
            audit=PostgresAudit(engine),
            chains=Chains(MasterKeys(masters), JsonCodec()),
            journal=PostgresJournal(engine),
        )
        yield Survey(checkup=checkup, clock=SystemClock(), deep=not quick)


async def _fsck(settings: Settings, session: str | None, *, as_json: bool, quick: bool) -> int:
    found: list[Finding] = []
    try:
        async with surveying(settings, quick=quick) as survey:
            if session is None:
                async for finding in survey.all():
                    found.append(finding)
                    _show(finding, as_json=as_json)
            elif await survey.checkup.audit.row(session) is None:
                todo = "Ids look like ses_0198…; `surefoot trace` shows one over HTTP."
                raise StartError(f"There is no session {session!r} in this database.", todo)
            else:
                found = await survey.of([session])
                for finding in found:
                    _show(finding, as_json=as_json)
            tally = survey.tally
    except (StoreUnavailable, StoreRefused) as error:
        todo = "Check SUREFOOT_DATABASE_URL, and that `surefoot migrate` ran."
        raise StartError(f"The database cannot be read: {error}", todo) from None
    if as_json:
        shown = {"findings": [f.shown() for f in found], "sessions": tally.sessions}
        _write(json.dumps({**shown, "unopened": tally.unopened}, ensure_ascii=False))
    else:
        _write(f"{tally.sessions} sessions, {len(found)} findings")
        if tally.unopened:
            _write(
                f"{tally.unopened} were not opened: SUREFOOT_ENCRYPTION_KEYS lacks their keys, so "
                "their chains and contents were not looked at"
            )
    return 1 if found else 0


def _show(finding: Finding, *, as_json: bool) -> None:
    if not as_json:
        at = "" if finding.seq is None else f" at event {finding.seq}"
        _write(f"{finding.session_id} {finding.invariant.value}{at}: {finding.detail}")
        _write(f"  → {finding.advice}")


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")


def _plain(secret: SecretStr | None) -> str:
    return "" if secret is None else secret.get_secret_value()
