"""Tries the faults in the statements: each is put into place, and the tests of storage run on it.

All in one pytest session, on one Postgres: `python -m tests.mutants.sql_playing [CLAIM …]`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

import pytest

from tests.mutants.sql_fault import SqlFault
from tests.mutants.sql_faults import FAULTS, TESTS

_TEST_S: Final = 20


class SqlPlayer:
    """A pytest plugin whose loop over the tests is a loop over faults."""

    def __init__(self, faults: Sequence[SqlFault]) -> None:
        self._faults = faults
        self.lived: list[SqlFault] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once without a fault, then for each fault until one fails."""
        items = [item for item in session.items if "[fake" not in item.nodeid]
        cost_s = dict.fromkeys(items, 0.0)
        for item in items:
            before = perf_counter()
            _run(item, items)
            cost_s[item] = perf_counter() - before
        if session.testsfailed:
            pytest.exit("the tests fail without a fault", returncode=1)
        items.sort(key=lambda item: cost_s[item])
        plugins = session.config.pluginmanager
        plugins.unregister(plugins.getplugin("terminalreporter"))
        for fault in self._faults:
            with _planted(fault):
                killer = next((i for i in items if _fails(session, i, items)), None)
            told = "SURVIVED" if killer is None else f"killed by {killer.name}"
            print(f"{fault.statement}: {fault.what}: {told}", file=sys.__stderr__, flush=True)
            if killer is None:
                self.lived.append(fault)
        items[0].session._setupstate.teardown_exact(None)  # noqa: SLF001 - ends the servers
        return True


def _fails(session: pytest.Session, item: pytest.Item, items: list[pytest.Item]) -> bool:
    session.testsfailed = 0
    _run(item, items)
    failed, session.testsfailed = session.testsfailed > 0, 0
    return failed


def _run(item: pytest.Item, items: list[pytest.Item]) -> None:
    """Run a test as if one of another folder followed, so that nothing stays but the servers."""
    then = next(other for other in items if other.path.parent != item.path.parent)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)


@contextmanager
def _planted(fault: SqlFault) -> Iterator[None]:
    """Put the faulty statement wherever the sound one was imported to."""
    sound = vars(sys.modules[fault.module])[fault.statement]
    holders = [m for m in sys.modules.values() if vars(m).get(fault.statement) is sound]
    for module in holders:
        setattr(module, fault.statement, fault.applied(sound))
    try:
        yield
    finally:
        for module in holders:
            setattr(module, fault.statement, sound)


def main(statements: Sequence[str] = ()) -> int:
    """Play every fault, or those in the named statements; the exit code is 1 when one survives."""
    options = ["-q", "-s", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
    faults = [f for f in FAULTS if not statements or f.statement in statements]
    player = SqlPlayer(faults)
    code = int(pytest.main([*options, "-o", f"timeout={_TEST_S}", *TESTS], plugins=[player]))
    print(f"sql: {len(faults)} faults, {len(player.lived)} survived")
    return code or bool(player.lived)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
