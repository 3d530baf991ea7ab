"""Protective mechanisms taken out, one at a time, to see what each of them is good for."""

import gc
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Final

from app.core import plan
from app.core.state import CallStage
from app.runtime.execution.lease import Hold
from app.runtime.execution.writer import JournalWriter
from app.runtime.execution.writer import _Waiting as Waiting
from app.storage import journal, sessions
from app.storage.workers import PostgresWorkers
from app.tools import http


def take_out(mechanism: str) -> None:
    """Run this process without one mechanism."""
    MECHANISMS[mechanism]()


def _replace(module: object, name: str, value: object) -> None:
    assert hasattr(module, name)
    setattr(module, name, value)


def _fence_in_the_append() -> None:
    fence = "s.epoch = e.epoch and"
    assert fence in journal.APPEND
    _replace(journal, "APPEND", journal.APPEND.replace(fence, ""))


def _condition_of_the_release() -> None:
    condition = "l.release and s.inbox_head = l.inbox_seen"
    assert condition in journal.APPEND
    _replace(journal, "APPEND", journal.APPEND.replace(condition, "l.release"))


def _lease_before_sending() -> None:
    _replace(Hold, "fresh", lambda _hold: True)


def _fence_at_the_first_byte() -> None:
    trace = http._Flight.trace  # noqa: SLF001 - there is no other place to take it out

    async def unfenced(flight: http._Flight, name: str, info: object) -> None:
        flight.may_send = lambda: True
        await trace(flight, name, info)

    _replace(http._Flight, "trace", unfenced)  # noqa: SLF001


def _doubt_of_the_ledger() -> None:
    _replace(plan, "in_flight", lambda c: c.stage is CallStage.INTENDED and not c.call.client)


def _reading_back() -> None:
    async def again(writer: JournalWriter, batch: Iterable[Waiting]) -> None:
        for waiting in batch:
            writer._again(waiting)  # noqa: SLF001 - there is no other place to take it out

    _replace(JournalWriter, "_read_back", again)


def _handing_over() -> None:
    async def stay(*_: object, **__: object) -> None:
        return

    _replace(PostgresWorkers, "remove", stay)
    _replace(PostgresWorkers, "give_up", stay)


def _sweeping() -> None:
    async def nothing(_workers: object) -> int:
        return 0

    _replace(PostgresWorkers, "sweep", nothing)


def _remembering() -> None:
    async def nothing(*_: object) -> None:
        return

    _replace(sessions._Locked, "remember", nothing)  # noqa: SLF001 - there is no other place


def _traced() -> None:
    """Take nothing out; count what Python allocates, and tell it on SIGUSR1."""
    tracemalloc.start()

    def tell(*_: object) -> None:
        gc.collect()
        os.write(2, f"traced.bytes {tracemalloc.get_traced_memory()[0]}\n".encode())

    signal.signal(signal.SIGUSR1, tell)


def _hold() -> None:
    _replace(Hold, "fresh", lambda hold: hold.lease.fresh())


MECHANISMS: Final[dict[str, Callable[[], None]]] = {
    "fence": _fence_in_the_append,
    "release": _condition_of_the_release,
    "lease": _lease_before_sending,
    "first byte": _fence_at_the_first_byte,
    "doubt": _doubt_of_the_ledger,
    "read back": _reading_back,
    "hold": _hold,
    "sweep": _sweeping,
    "remember": _remembering,
    "traced": _traced,
    "hand over": _handing_over,
}
