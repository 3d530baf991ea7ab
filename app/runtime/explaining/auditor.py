"""The standing auditor: what can be seen of the invariants without a key, looked at all the time.

Sessions that nobody will run are found by index, among all there are. The rest is a sample, so that
a round costs the same whatever the number of sessions: the newest, the next few of a slow round
over all, and those of which something is known already.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.runtime.errors import PortError
from app.runtime.explaining.findings import Finding, Invariant
from app.runtime.explaining.ports import AuditStore
from app.runtime.ports.process import Clock, Observer

NEWEST: Final = 100
NEXT: Final = 200
EVENTS: Final = 500
MOST: Final = 100
RECHECK_S: Final = 2.0

Key = tuple[str, Invariant]


@dataclass(slots=True, kw_only=True)
class Auditor:
    """Looks every `every_s`; tells how many sessions break each invariant. 0: it never looks."""

    clock: Clock
    audit: AuditStore
    observer: Observer
    every_s: float
    tell: Callable[[Mapping[str, int]], None]
    recheck_s: float = RECHECK_S
    _known: dict[Key, Finding] = field(default_factory=dict)
    _after: str = ""

    async def run(self) -> None:
        """Look for as long as the process lives; not all processes at the same moment."""
        while self.every_s > 0:
            await self.clock.sleep(self.every_s * (0.5 + self.clock.jitter()))
            try:
                await self.round()
            except PortError as error:  # away, or a schema that is not there yet: the next round
                self.observer.log("audit.failed", level="warning", why=str(error))

    async def round(self) -> None:
        """Look once, and again at what was found before it is told."""
        found = {(f.session_id, f.invariant): f for f in await self._look()}
        fresh = sorted({key[0] for key in found if key not in self._known})
        if fresh:
            await self.clock.sleep(self.recheck_s)
            still = {(f.session_id, f.invariant) for f in await self.audit.check(fresh, EVENTS)}
            found = {k: f for k, f in found.items() if k[0] not in fresh or k in still}
        self._report(found)

    async def _look(self) -> list[Finding]:
        found = await self.audit.suspects()
        ids = {key[0] for key in self._known} | set(await self.audit.newest(NEWEST))
        further = await self.audit.after(self._after, NEXT)
        self._after = further[-1] if len(further) == NEXT else ""
        return found + await self.audit.check(sorted(ids | set(further)), EVENTS)

    def _report(self, found: Mapping[Key, Finding]) -> None:
        known = {key: found[key] for key in sorted(found)[:MOST]}
        for key, finding in known.items():
            if key not in self._known:
                self._log("invariant.broken", "error", finding)
        for key, finding in self._known.items():
            if key not in found:
                self._log("invariant.holds", "info", finding)
        self._known = known
        counted = Counter(invariant.value for _, invariant in found)
        self.tell({invariant.value: counted[invariant.value] for invariant in SEEN})

    def _log(self, event: str, level: str, finding: Finding) -> None:
        self.observer.log(
            event,
            level=level,
            session_id=finding.session_id,
            invariant=finding.invariant.value,
            detail=finding.detail,
            todo=finding.advice,
        )


SEEN: Final[Sequence[Invariant]] = (
    Invariant.OWNED,
    Invariant.SWEPT,
    Invariant.DENSE,
    Invariant.HEAD,
    Invariant.TURN_ENDS,
    Invariant.INBOX,
)
"""What is seen without a key; `surefoot fsck` sees the others too."""
