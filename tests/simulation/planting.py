"""How faults are planted: something before a port, something else inside a module."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.simulation.cluster import Cluster
from tests.simulation.loop import Process


class Around:
    """Something before a port; what it does not name it passes on."""

    def __init__(self, port: object, cluster: Cluster, process: Process) -> None:
        self.port = port
        self.cluster = cluster
        self.process = process

    def __getattr__(self, name: str) -> object:
        return getattr(self.port, name)


def patched(module: object, name: str, new: object) -> Callable[[], AbstractContextManager[None]]:
    """Return what replaces something inside a module for the length of a run."""

    @contextmanager
    def replaced() -> Iterator[None]:
        old = getattr(module, name)
        setattr(module, name, new)
        try:
            yield
        finally:
            setattr(module, name, old)

    return replaced
