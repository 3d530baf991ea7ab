"""Take-over and drain: how long sessions stand still when their worker is killed or told to end.

Two workers, sessions whose model takes 200 ms a call; in the middle of them one worker is killed
(-9) or gets SIGTERM. What the journal says of the sessions that changed hands is reported.
"""

import asyncio
import os
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import aiohttp

from tests.bench.ground import Ground
from tests.bench.systems import Running, surefoot
from tests.bench.work import task

_SESSIONS: Final = 32
_BEGUN_S: Final = 0.5
_ENDED_S: Final = 60.0
_LEASES_S: Final = (15.0, 3.0)
_Event = Mapping[str, object]


@dataclass(frozen=True)
class Handover:
    """What one blow gave.

    `claimed` and `stepped` hold, for each session that changed hands, the
    seconds from the blow to its claim and to the first answer after it; `exit_s` is how long the
    process took to end.
    """

    blow: str
    lease_s: float
    exit_s: float
    claimed: tuple[float, ...]
    stepped: tuple[float, ...]


async def handovers(ground: Ground) -> list[Handover]:
    """Return a kill under the usual lease and under a short one, and a drain.

    Raises:
        RuntimeError: when a session does not end as it should, or none changed hands.

    """
    done = [await _blow(ground, signal.SIGKILL, lease_s) for lease_s in _LEASES_S]
    return [*done, await _blow(ground, signal.SIGTERM, _LEASES_S[0])]


async def _blow(ground: Ground, blow: signal.Signals, lease_s: float) -> Handover:
    system = surefoot(
        blow.name,
        roles=("api", "worker", "worker"),
        env=lambda _ground: {"SUREFOOT_LEASE_S": str(lease_s)},
    )
    async with system.start(ground) as running, aiohttp.ClientSession(running.url) as http:
        os.kill(running.processes[2].pid, signal.SIGSTOP)  # so that the other has them all
        ids = [await _created(http) for _ in range(_SESSIONS)]
        await asyncio.sleep(_BEGUN_S)  # the moment of the blow: each is in its third of five calls
        os.kill(running.processes[2].pid, signal.SIGCONT)
        at, exit_s = await _struck(running, blow)
        journals = [await _journal(http, session_id) for session_id in ids]
    changed = [after_it for after_it in (after(journal, at) for journal in journals) if after_it]
    if not changed:
        raise RuntimeError(f"no session changed hands after {blow.name}")
    claimed, stepped = zip(*changed, strict=True)
    return Handover(blow.name, lease_s, exit_s, claimed, stepped)


async def _struck(running: Running, blow: signal.Signals) -> tuple[float, float]:
    """Strike a worker; return when that was and how long the worker took to end."""
    worker = running.processes[1]
    at = time.time()
    os.kill(worker.pid, blow)
    await worker.wait()
    return at, time.time() - at


async def _created(http: aiohttp.ClientSession) -> str:
    async with http.post("/v1/sessions", json={"task": task(slow=True)}) as answer:
        session_id: str = (await answer.json())["id"]
        return session_id


async def _journal(http: aiohttp.ClientSession, session_id: str) -> list[_Event]:
    """Return a session's events once it has completed."""
    deadline, status = time.monotonic() + _ENDED_S, ""
    path = f"/v1/sessions/{session_id}"
    while time.monotonic() < deadline:
        async with http.get(path) as answer:
            status = (await answer.json())["status"]
        if status == "completed":
            async with http.get(f"{path}/events", params={"limit": "200"}) as answer:
                events: list[_Event] = (await answer.json())["data"]
                return events
        await asyncio.sleep(0.1)
    raise RuntimeError(f"{session_id} is {status} {_ENDED_S:.0f} s after the blow")


def after(journal: Sequence[_Event], blow_at: float) -> tuple[float, float] | None:
    """Return when a session was claimed and went on after the blow; None: it did not change hands.

    A claim is written with what follows from it, so its time is that of the claim itself.
    """
    claims = [n for n, event in enumerate(journal) if event["type"] == "session.claimed"]
    if len(claims) < 2:
        return None
    again = claims[1]
    answers = [e for e in journal[again:] if e["type"] == "model.answered"]
    return _seconds(journal[again]) - blow_at, _seconds(answers[0]) - blow_at


def _seconds(event: _Event) -> float:
    return datetime.fromisoformat(str(event["at"])).timestamp()


def told(handed: Sequence[Handover]) -> list[str]:
    """Return a line for each blow, over all repetitions of it."""
    lines = []
    for blow, lease_s in dict.fromkeys((h.blow, h.lease_s) for h in handed):
        same = [h for h in handed if (h.blow, h.lease_s) == (blow, lease_s)]
        claimed = [seconds for h in same for seconds in h.claimed]
        stepped = [seconds for h in same for seconds in h.stepped]
        exits = statistics.median(h.exit_s for h in same)
        lines.append(
            f"- {blow}, lease {lease_s:g} s: {len(claimed)} sessions changed hands; "
            f"claimed {_spread(claimed)}, next answer {_spread(stepped)} after it; "
            f"the process ended after {exits:.2f} s"
        )
    return lines


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s (to {max(values):.2f})"
