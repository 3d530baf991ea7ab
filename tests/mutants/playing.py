"""Tries mutants inside one pytest session: a fork each, with the tests that call its function.

The tests are collected once and run once unharmed, which tells what calls what and how long it
takes. Then each mutant has a child process, in which its tests run, the quick ones first, until one
fails. Started by `python -m tests.mutants` in a room's copy of the tree.
"""

import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from time import process_time
from typing import Final

import pytest
from hypothesis import Phase, settings
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

from tests.mutants.making import Mutant, listed, write
from tests.mutants.tables import Table, tables

RESULTS: Final = "results.json"
KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "untested"
TYPES: Final = "refused by mypy"
_TIMES: Final = 4
_CPU_S, _WALL_S = 2.0, 120.0
_SAVED_EACH: Final = 25
_DONE: Final = frozenset({KILLED, TIMEOUT, TYPES})


class Player:
    """A pytest plugin whose loop over the tests is a loop over mutants."""

    def __init__(self, place: Path, mutants: list[Mutant]) -> None:
        self._place = place
        self._mutants = mutants
        self._tables: dict[str, Table] = {}
        self._callers: dict[str, list[pytest.Item]] = defaultdict(list)
        self._cost_s: dict[str, float] = {}
        self._results: dict[str, str] = load(place)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn, then try what is not known to be killed: the unknown, survivors, then tables."""
        self._learn(session)
        if session.testsfailed:
            pytest.exit("the tests fail without a mutant", returncode=1)
        self._find_tables(session)
        left = [m for m in self._mutants if self._results.get(m.digest) not in _DONE]
        left.sort(key=lambda m: (m.digest in self._tables, m.digest in self._results))
        for count, mutant in enumerate(left, 1):
            self._results[mutant.digest] = self._try(session, mutant)
            if count % _SAVED_EACH == 0 or count == len(left):
                save(self._place, self._results)
                _say(f"{count}/{len(left)} {mutant.path}")
        return True

    def _learn(self, session: pytest.Session) -> None:
        _choose("stats")
        for n, item in enumerate(session.items):
            state()._stats.clear()  # noqa: SLF001 - mutmut has no other way to ask
            before = process_time()
            _run(item, session.items[n + 1] if n + 1 < len(session.items) else None)
            self._cost_s[item.nodeid] = process_time() - before
            for function in state()._stats:  # noqa: SLF001
                self._callers[function].append(item)
        _choose("")
        for items in self._callers.values():
            items.sort(key=lambda item: self._cost_s[item.nodeid])

    def _find_tables(self, session: pytest.Session) -> None:
        """Every test may read a table, so all of them judge it."""
        files = json.loads((self._place / "files.json").read_text())
        found = list(tables(files, self._place.parents[1]))
        self._tables = {table.mutant.digest: table for table in found}
        new = [table.mutant for table in found]
        in_order = sorted(session.items, key=lambda item: self._cost_s[item.nodeid])
        self._callers |= dict.fromkeys((m.function for m in new), in_order)
        self._mutants = [*self._mutants, *new]
        write(self._place, self._mutants)

    def _try(self, session: pytest.Session, mutant: Mutant) -> str:
        items = self._callers[mutant.function]
        if not items:
            return UNTESTED
        child = os.fork()
        if child == 0:
            os._exit(self._judge(session, mutant, items))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) in {signal.SIGPROF, signal.SIGALRM}
            return TIMEOUT if late else KILLED
        return KILLED if os.WEXITSTATUS(status) else SURVIVED

    def _judge(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item]) -> int:
        """Run the tests in the child; both timers end the process when they ring."""
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        session.config.pluginmanager.unregister(reporter)
        expected_s = sum(self._cost_s[item.nodeid] for item in items)
        signal.setitimer(signal.ITIMER_PROF, _CPU_S + _TIMES * expected_s)
        signal.setitimer(signal.ITIMER_REAL, _WALL_S + 10 * _TIMES * expected_s)
        if table := self._tables.get(mutant.digest):
            table.put()
        else:
            _choose(mutant.name)
        try:
            for n, item in enumerate(items):
                _run(item, items[n + 1] if n + 1 < len(items) else None)
                if session.testsfailed:
                    return 1
        except BaseException:  # noqa: BLE001 - a mutant may break anything; that it does is the point
            return 1
        return 0


def load(place: Path) -> dict[str, str]:
    """Return what became of mutants, by digest."""
    path = place / RESULTS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(place: Path, results: dict[str, str]) -> None:
    """Keep it, so that a run can be taken up again."""
    new = place / f"{RESULTS}.new"
    new.write_text(json.dumps(results))
    new.replace(place / RESULTS)


def _choose(mutant: str) -> None:
    """Choose a mutant for this process; the environment would be asked first, and it is slow."""
    set_mutant_under_test(mutant)
    del os.environ["MUTANT_UNDER_TEST"]


def _run(item: pytest.Item, then: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)


def _say(line: str) -> None:
    sys.__stderr__ and print(line, file=sys.__stderr__, flush=True)


def main() -> int:
    """Play the mutants listed in this folder against the tests given as arguments."""
    quick = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, phases=quick, derandomize=True)
    place = Path.cwd()
    options = ["-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0"]
    profile = ["--hypothesis-profile=mutants", "-s"]
    player = Player(place, listed(place))
    return int(pytest.main([*options, *profile, *sys.argv[1:]], plugins=[player]))


if __name__ == "__main__":
    sys.exit(main())
