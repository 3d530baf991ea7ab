"""The service with a point at which it kills or stops itself, for tests of recovery.

    python -m tests.integration.killable append:3:before serve --role worker

is `surefoot serve --role worker`, except that at the third append, before it reaches Postgres, the
process gets SIGKILL. With `--action stop` it gets SIGSTOP: a test can look around, then kill it or
let it go on. With `stall` it also waits then until its lease was renewed, as a call does that takes
its time to connect. With `lose` the call's answer is lost, as with a connection that breaks. The
points are calls of ports; the adapters are replaced where the service is wired, so nothing in
`app/` knows of them:

    append  the journal's writes            claim    sessions being taken
    model   calls of a model                tool     calls of a tool
    spec    a tool's definition being read: after the durable intent, before the fence
    hot     folded states going to Redis    create   sessions being made by the API
    nudge   telling workers, once a request is committed

`after` is when the call has come back and nobody has seen its answer yet.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Literal, ParamSpec, TypeVar, get_args

from app.cli.main import main as surefoot
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.providers.registry import Models
from app.runtime.catalog import Catalog
from app.runtime.errors import StoreUnavailable
from app.storage.journal import PostgresJournal
from app.storage.sessions import PostgresSessions
from app.storage.workers import PostgresWorkers
from app.tools.runner import Tools

P = ParamSpec("P")
T = TypeVar("T")

_PORTS: dict[str, tuple[type, str]] = {
    "append": (PostgresJournal, "append_batch"),
    "claim": (PostgresWorkers, "claim"),
    "model": (Models, "answer"),
    "tool": (Tools, "run"),
    "spec": (Catalog, "spec"),
    "hot": (RedisHotStates, "put"),
    "create": (PostgresSessions, "create"),
    "nudge": (RedisHub, "nudge"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One moment: before or after the n-th call of a port that did something."""

    port: str
    nth: int
    side: str

    @classmethod
    def parse(cls, text: str) -> "Point":
        """Read `port:n:before` or `port:n:after`."""
        port, nth, side = text.split(":")
        if port not in _PORTS or side not in {"before", "after"}:
            raise ValueError(f"no such point: {text}")
        return cls(port, int(nth), side)


Action = Literal["kill", "stop", "stall", "lose"]


def arm(point: Point, action: Action = "kill") -> None:
    """Put the point into this process, before the service is wired."""
    owner, name = _PORTS[point.port]
    renewed = _renewed() if action == "stall" else None

    async def strike() -> None:
        if action == "lose":
            raise StoreUnavailable("The connection broke.")
        os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        if renewed is not None:
            renewed.clear()
            await renewed.wait()

    setattr(owner, name, _striking(getattr(owner, name), point, strike))


def _renewed() -> asyncio.Event:
    """Return an event that is set each time the lease was renewed."""
    event = asyncio.Event()
    renew = PostgresWorkers.renew

    async def renewing(workers: PostgresWorkers, worker: str, lease_s: float) -> None:
        await renew(workers, worker, lease_s)
        event.set()

    setattr(PostgresWorkers, "renew", renewing)  # noqa: B010 - a method is replaced
    return event


def _striking(
    call: Callable[P, Awaitable[T]], point: Point, strike: Callable[[], Awaitable[None]]
) -> Callable[P, Awaitable[T]]:
    count = 0

    @wraps(call)
    async def struck(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal count
        if point.port != "claim" or point.side == "before":
            count += 1
        mine = count
        if mine == point.nth and point.side == "before":
            await strike()
        answer = await call(*args, **kwargs)
        if point.port == "claim" and point.side == "after" and answer:
            count = mine = mine + 1  # a look which found nothing is no claim
        if mine == point.nth and point.side == "after":
            await strike()
        return answer

    return struck


def main() -> None:
    """Run a command of `surefoot` with a point in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("point", type=Point.parse)
    parser.add_argument("--action", choices=get_args(Action), default="kill")
    given, arguments = parser.parse_known_args()
    arm(given.point, given.action)
    surefoot(arguments)


if __name__ == "__main__":
    main()
