"""The service with a point at which it is struck, for tests of recovery.

    python -m tests.integration.killable append:3:before serve --role worker

is `surefoot serve --role worker`, except that at the third append, before it reaches Postgres, the
process gets SIGKILL. With `--action stop` it gets SIGSTOP: a test can look around, then kill it or
let it go on; with `term` SIGTERM, while it goes on. With `stall` it is stopped and also waits then
until its lease was renewed, as a call does that takes its time to connect. With `lose` the call's
answer is lost, as with a connection that breaks.

The points are calls of ports (`tests.integration.points`); some of them:

    append  the journal's writes            claim    sessions being taken
    model   calls of a model                tool     calls of a tool
    spec    a tool's definition being read: after the durable intent, before the fence
    hot     folded states going to Redis    create   sessions being made by the API
    nudge   telling workers, once a request is committed
"""

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, get_args

from app.cli.main import main as surefoot
from app.runtime.errors import StoreUnavailable
from app.storage.workers import PostgresWorkers
from tests.integration.points import Point, watch

Action = Literal["kill", "stop", "term", "stall", "lose"]
_SIGNALS: Final = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "stall": signal.SIGSTOP,
    "term": signal.SIGTERM,
}


def arm(point: Point, action: Action = "kill", mark: str | None = None) -> None:
    """Put the point into this process, before the service is wired; `mark` is made when it hits."""
    strike = _striker(action)
    struck = False

    async def hook(_port: str, nth: int, side: str) -> None:
        nonlocal struck
        if (nth, side) == (point.nth, point.side) and not struck:
            struck = True
            if mark is not None:
                os.close(os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))
            await strike()

    watch(point.port, hook)


def record(ports: Iterable[str], path: str) -> None:
    """Write every point that this process passes into a file, one a line."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def hook(port: str, nth: int, side: str) -> None:
        os.write(file, f"{port}:{nth}:{side}\n".encode())

    for port in ports:
        watch(port, hook)


def _striker(action: Action) -> Callable[[], Awaitable[None]]:
    renewed = _renewed() if action == "stall" else None

    async def strike() -> None:
        if action == "lose":
            raise StoreUnavailable("The connection broke.")
        os.kill(os.getpid(), _SIGNALS[action])
        if renewed is not None:
            renewed.clear()
            await renewed.wait()

    return strike


def _renewed() -> asyncio.Event:
    """Return an event that is set each time the lease was renewed."""
    event = asyncio.Event()
    renew = PostgresWorkers.renew

    async def renewing(workers: PostgresWorkers, worker: str, lease_s: float) -> None:
        await renew(workers, worker, lease_s)
        event.set()

    setattr(PostgresWorkers, "renew", renewing)  # noqa: B010 - a method is replaced
    return event


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
