"""A worker: it holds one lease, claims sessions that are due, and runs a driver for each.

Nudges only hurry it; the poll each second finds everything that is due. Drain stops claiming,
lets running steps reach a boundary or drops them, then ends the lease so that others take over
at once.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.state import State
from app.runtime.errors import Erased, PortError, StoreUnavailable, Tampered
from app.runtime.execution.desk import Desk
from app.runtime.execution.driver import Driver
from app.runtime.execution.lease import Hold
from app.runtime.execution.poison import is_poison, laid_to_rest, obituary
from app.runtime.execution.recovery import SHORT_JOURNAL, Recovery
from app.runtime.ports.journal import SealedEvent
from app.runtime.ports.workers import Claim, Owned, WorkerStore
from app.runtime.sealing import Sealer

POLL_S: Final = 1.0
LAG_PROBE_S: Final = 0.25
RENEWALS_PER_LEASE: Final = 3
AFTER_FAILURE_S: Final = 0.5
SPARE: Final = 8
"""How many sessions beyond its slots a worker owns for as long as it takes to end their turns."""

SPARE_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How many sessions a worker runs at once, and how long it drains."""

    slots: int = 256
    per_tenant: int = 64
    drain_s: float = 10.0


class Worker:
    """Runs sessions until it is told to stop. `run` belongs into the process's task group."""

    def __init__(
        self, *, desk: Desk, workers: WorkerStore, recovery: Recovery, options: WorkerOptions
    ) -> None:
        """Start without a lease and without sessions."""
        self._desk = desk
        self._workers = workers
        self._recovery = recovery
        self._options = options
        self._drivers: dict[str, Driver] = {}
        self._due = asyncio.Event()
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._ending: set[tuple[str, int]] = set()
        self._full = asyncio.Event()
        self._claiming = asyncio.Lock()
        self.lag_s = 0.0
        desk.hub.on_nudge(self.nudge)

    @property
    def owned(self) -> int:
        """Return how many sessions run here."""
        return len(self._tasks)

    @property
    def healthy(self) -> bool:
        """Return whether the lease is fresh and the loop keeps up."""
        return self._desk.lease.fresh() and self.lag_s < self._desk.lease.lease_s / 3

    def nudge(self, session_id: str) -> None:
        """Look now whether something is due, or into the inbox of a session that runs here."""
        driver = self._drivers.get(session_id)
        if driver is not None and not driver.released:
            driver.poke()
        else:
            self._due.set()

    async def run(self) -> None:
        """Claim and run sessions until `drain` has ended."""
        await self._renew_once()  # if Postgres is away, the chore below goes on trying
        async with asyncio.TaskGroup() as group:
            chores = [
                group.create_task(self._desk.writer.run()),
                group.create_task(self._renew()),
                group.create_task(self._poll()),
                group.create_task(self._watch_lag()),
                group.create_task(self._end_beyond_slots(group)),
            ]
            await self._claim_until_drained(group)
            await self._drain()
            for chore in chores:
                chore.cancel()
        with self._outliving("remove"):
            await self._workers.remove(self._desk.worker)

    def drain(self) -> None:
        """Claim nothing more, hand running sessions over, and let `run` return."""
        self._draining.set()
        self._due.set()

    async def _claim_until_drained(self, group: asyncio.TaskGroup) -> None:
        while not self._draining.is_set():
            await self._due.wait()
            self._due.clear()
            free = self._free
            if free <= 0:
                self._full.set()
            if free <= 0 or self._draining.is_set() or not self._desk.lease.fresh():
                continue
            with self._outliving("claim"):
                if await self._claim(group, free):
                    self._due.set()

    @property
    def _free(self) -> int:
        return self._options.slots - len(self._tasks) + len(self._ending)

    async def _end_beyond_slots(self, group: asyncio.TaskGroup) -> None:
        """While all slots are taken, end what is to be cancelled or closed.

        With all of them at long calls there may be none for hours.
        """
        while True:
            await self._full.wait()
            self._full.clear()
            with self._outliving("claim_ending"):
                await self._claim_ending(group)
            await self._desk.clock.sleep(SPARE_EVERY_S)

    async def _claim(self, group: asyncio.TaskGroup, free: int) -> bool:
        """Claim what is due; return whether there may be more than one claim takes."""
        most = min(free, self._options.per_tenant)
        async with self._claiming:
            hold = self._desk.lease.hold()
            keys = self._recovery.keyring.ids
            claims = await self._workers.claim(self._desk.worker, free, most, keys)
            self._begin(group, claims, hold, await self._read_short(claims))
        return len(claims) >= most

    async def _claim_ending(self, group: asyncio.TaskGroup) -> None:
        async with self._claiming:
            spare = SPARE - len(self._ending)
            if spare <= 0 or self._draining.is_set() or not self._desk.lease.fresh():
                return
            hold = self._desk.lease.hold()
            keys = self._recovery.keyring.ids
            claims = await self._workers.claim_ending(self._desk.worker, spare, keys)
            read = await self._read_short(claims)
            if not self._draining.is_set():  # else the next look at what we own lets them go
                self._ending.update((claim.session_id, claim.epoch) for claim in claims)
                self._begin(group, claims, hold, read)

    def _begin(
        self,
        group: asyncio.TaskGroup,
        claims: Sequence[Claim],
        hold: Hold,
        read: dict[str, list[SealedEvent]],
    ) -> None:
        for claim in claims:
            work = self._run_session(claim, hold, read.get(claim.session_id))
            self._tasks[claim.session_id, claim.epoch] = group.create_task(work)
            self._idle.clear()

    async def _read_short(self, claims: Sequence[Claim]) -> dict[str, list[SealedEvent]]:
        """Read the short journals of a batch of claims in one query."""
        short = {c.session_id: 0 for c in claims if c.head <= SHORT_JOURNAL}
        try:
            return await self._desk.journal.read_many(short) if short else {}
        except StoreUnavailable:
            return {}  # each session reads its own, once Postgres is back

    async def _run_session(self, claim: Claim, hold: Hold, read: list[SealedEvent] | None) -> None:
        """Run one session; whatever goes wrong in it stays in it.

        A hand-over in a drain is not counted as a claim without an answer: in a rolling restart
        a session may pass through many hands while it waits for one long answer. Nor is the return
        of a session that has more to do than to end a turn, and has no slot for it.
        """
        driver, crashed = None, False
        briefly = (claim.session_id, claim.epoch) in self._ending
        try:
            driver = await self._driver(claim, hold, read)
            if driver is not None:
                await driver.run()
        except Exception as error:  # noqa: BLE001 - one session's fault must not end the others
            crashed = True
            self._desk.observer.log(
                "session.crashed",
                session_id=claim.session_id,
                error=type(error).__name__,
                detail=_causes(error),
            )
            await self._desk.clock.sleep(AFTER_FAILURE_S)
        finally:
            try:
                if driver is None or not driver.released:
                    handed_over = briefly or self._draining.is_set()
                    await self._give_up(claim, blameless=handed_over and not crashed)
                    if self._draining.is_set():  # else we look ourselves, at once
                        await self._desk.hub.nudge(claim.session_id)
            finally:  # a drain may cut that short: it waits until all have left
                self._leave(claim, driver)

    def _leave(self, claim: Claim, driver: Driver | None) -> None:
        """Forget this run of a session, which may have been claimed anew; look for others."""
        was_full = self._free <= 0
        del self._tasks[claim.session_id, claim.epoch]
        self._ending.discard((claim.session_id, claim.epoch))
        if self._drivers.get(claim.session_id) is driver:
            self._drivers.pop(claim.session_id, None)
        if not self._tasks:
            self._idle.set()
        if was_full or driver is None or driver.poked or not driver.released:
            self._due.set()

    async def _driver(
        self, claim: Claim, hold: Hold, read: list[SealedEvent] | None
    ) -> Driver | None:
        """Return a driver for a claim, or None when there is nothing to drive."""
        try:
            sealer = self._recovery.sealer(claim)
        except (Erased, Tampered) as error:
            if isinstance(error, Tampered) and not is_poison(claim):
                raise
            await self._end_without_folding(claim, None)
            return None
        if is_poison(claim):
            await self._end_without_folding(claim, sealer)
            return None
        state = await self._fold(claim, sealer, read)
        driver = Driver(self._desk, claim, hold, state, sealer)
        if claim.session_id in self._drivers:
            self._drivers[claim.session_id].drop()  # its epoch is over
        self._drivers[claim.session_id] = driver
        if self._draining.is_set() or (claim.session_id, claim.epoch) in self._ending:
            driver.drop()
        return driver

    async def _fold(self, claim: Claim, sealer: Sealer, read: list[SealedEvent] | None) -> State:
        """Fold a session, however long Postgres is away: that is no fault of the session."""
        while True:
            try:
                return await self._recovery.fold(claim, sealer, read)
            except StoreUnavailable:
                await self._desk.clock.sleep(AFTER_FAILURE_S)

    async def _end_without_folding(self, claim: Claim, sealer: Sealer | None) -> None:
        """End a session that kills its owners, or whose content cannot be opened (no sealer)."""
        row = await self._desk.sessions.get(claim.tenant, claim.session_id)
        if row is None:
            return
        now = self._desk.clock.now_us()
        if sealer is None:
            append = laid_to_rest(claim, row, now)
        else:
            told = await self._desk.sessions.inbox(claim.session_id, claim.inbox_seen)
            unseen = {t.kind for t in told if t.n <= claim.inbox_head}
            append = obituary(claim, row, unseen, sealer, now)
        await self._desk.writer.append(append)
        self._desk.observer.log(
            "session.unreadable" if sealer is None else "session.poison",
            session_id=claim.session_id,
        )

    async def _give_up(self, claim: Claim | Owned, *, blameless: bool) -> None:
        with contextlib.suppress(PortError):
            await self._workers.give_up(
                self._desk.worker, claim.session_id, claim.epoch, blameless=blameless
            )

    async def _renew(self) -> None:
        """Renew the lease; after an outage at once, before others take our sessions for lost."""
        usual_s = self._desk.lease.lease_s / RENEWALS_PER_LEASE
        wait_s = usual_s
        while True:
            await self._desk.clock.sleep(wait_s)
            wait_s = usual_s if await self._renew_once() else min(usual_s, AFTER_FAILURE_S)

    async def _renew_once(self) -> bool:
        asked, renewed = self._desk.clock.boot_s(), False
        with self._outliving("renew"):
            await self._workers.renew(self._desk.worker, self._desk.lease.lease_s)
            renewed = True
        if renewed:
            self._desk.lease.confirm(asked)
            self._due.set()
        return renewed

    async def _poll(self) -> None:
        """Each second: what is due, whose owners are gone, which inboxes hold something."""
        while True:
            await self._desk.clock.sleep(POLL_S)
            with self._outliving("sweep"):
                await self._workers.sweep()
                await self._look_after_owned()
            self._due.set()

    @contextlib.contextmanager
    def _outliving(self, chore: str) -> Iterator[None]:
        """Go on with the next round of a chore whatever Postgres answered; a refusal is told."""
        try:
            yield
        except StoreUnavailable:
            return  # it passes; readiness tells
        except PortError as refused:
            self._desk.observer.log("worker.refused", level="error", chore=chore, why=str(refused))

    async def _look_after_owned(self) -> None:
        """Look into inboxes that hold something, and let go what is ours but runs nowhere.

        The latter happens when a claim was committed but its answer was lost with the connection.
        """
        async with self._claiming:
            owned = await self._workers.owned(self._desk.worker)
            lost = [o for o in owned if (o.session_id, o.epoch) not in self._tasks]
        for one in owned:
            if one.behind:
                self.nudge(one.session_id)
        for one in lost:
            await self._give_up(one, blameless=True)  # it never began

    async def _watch_lag(self) -> None:
        """Give up every session when the loop was blocked so long that the lease is in doubt."""
        while True:
            before = self._desk.clock.boot_s()
            await self._desk.clock.sleep(LAG_PROBE_S)
            self.lag_s = max(0.0, self._desk.clock.boot_s() - before - LAG_PROBE_S)
            if self.lag_s > self._desk.lease.lease_s / RENEWALS_PER_LEASE:
                self._desk.observer.log("worker.stalled", lag_s=round(self.lag_s, 3))
                for driver in self._drivers.values():
                    driver.drop()

    async def _drain(self) -> None:
        for driver in list(self._drivers.values()):
            driver.drop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_s):
                await self._idle.wait()
        for task in list(self._tasks.values()):
            task.cancel()
        await self._idle.wait()


def _causes(error: BaseException) -> str:
    """Return an error's message with those of the errors it groups."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_causes(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"
