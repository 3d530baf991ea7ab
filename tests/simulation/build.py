"""What a process is built from: the sound parts, or a build with one known fault planted."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from app.runtime.execution.lease import Lease
from app.runtime.execution.writer import JournalWriter
from app.runtime.ports.journal import Append, Appended, Fate
from app.runtime.streams.follow import Follower
from tests.fakes.store import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.loop import Process


def as_it_is(port: object, _cluster: "Cluster", _process: "Process") -> object:
    """Give a process its port as it is."""
    return port


@dataclass
class SimStore(MemoryStore):
    """The fake store, telling the audit of each append."""

    appended: Callable[..., None] = lambda *_a, **_k: None

    @override
    def _append(self, entry: Append) -> Appended:
        answer = super()._append(entry)
        if answer.fate is Fate.WRITTEN:
            self.appended(entry, self.rows[entry.session_id], released=answer.released)
        return answer


Wrap = Callable[[object, "Cluster", "Process"], object]


@dataclass(frozen=True)
class Build:
    """Parts of a process, and of the store, that a planted fault may replace."""

    name: str = "sound"
    store: type[SimStore] = SimStore
    writer: type[JournalWriter] = JournalWriter
    follower: type[Follower] = Follower
    lease: type[Lease] = Lease
    connection: Wrap = as_it_is
    hub: Wrap = as_it_is
    tools: Wrap = as_it_is
    patched: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """What is replaced inside modules for the length of a run."""


SOUND = Build()
