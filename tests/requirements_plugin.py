"""Records which test proves which requirement, and with what outcome.

A test names what it proves: `@pytest.mark.req("LOOP-3")` for lines of docs/requirements.md and
`@pytest.mark.case("C042")` for lines of tests/data/cases.jsonl. An id that is in neither stops the
collection. Each run adds its outcomes to `.requirements/results.json`, which `make requirements`
reads; a run of a part of the suite replaces only what it ran.

Where several processes run the tests, only the one that started them writes: it hears of every
outcome, and is told by each what was collected.
"""

from pathlib import Path

import pytest

from tests.scripts import trace

_MARKERS = ("req", "case")
_RECORDER = pytest.StashKey["Recorder"]()


def pytest_configure(config: pytest.Config) -> None:
    recorder = Recorder(config)
    config.stash[_RECORDER] = recorder
    config.pluginmanager.register(recorder)


class Recorder:
    """The outcomes of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._collected: dict[str, list[str]] = {}
        self._outcomes: dict[str, str] = {}
        self._partial = any("::" in arg for arg in config.args)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = trace.known_ids()
        wrong = []
        for item in items:
            ids = [str(i) for name in _MARKERS for m in item.iter_markers(name) for i in m.args]
            self._collected[item.nodeid] = ids
            wrong += [f"{item.nodeid}: {i}" for i in ids if i not in known]
        if wrong:
            raise pytest.UsageError("unknown requirement or case ids:\n" + "\n".join(wrong))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._partial = self._partial or bool(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst phase counts: a test whose teardown fails has not passed."""
        before = self._outcomes.get(report.nodeid)
        if report.failed or before == "failed":
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped or before == "skipped":
            self._outcomes[report.nodeid] = "skipped"
        else:
            self._outcomes[report.nodeid] = "passed"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """One of several processes has ended; one that broke off tells nothing."""
        told = getattr(node, "workeroutput", {})
        self._collected.update(told.get("collected", {}))
        self._partial = self._partial or told.get("partial", False)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workerinput"):
            told = {"collected": self._collected, "partial": self._partial}
            self._config.workeroutput.update(told)  # type: ignore[attr-defined]
        elif not self._config.option.collectonly:
            root = self._config.rootpath
            trace.save(self._merged(trace.load(root)), root)

    def _merged(self, earlier: trace.Results) -> trace.Results:
        files = {nodeid.partition("::")[0] for nodeid in self._collected}
        root = self._config.rootpath
        kept = {
            nodeid: entry
            for nodeid, entry in earlier.items()
            if self._still_there(root, nodeid, files)
        }
        for nodeid, outcome in self._outcomes.items():
            kept.pop(nodeid, None)
            if self._collected.get(nodeid):
                kept[nodeid] = {"ids": self._collected[nodeid], "outcome": outcome}
        return kept

    def _still_there(self, root: Path, nodeid: str, files: set[str]) -> bool:
        file = nodeid.partition("::")[0]
        renamed = file in files and not self._partial and nodeid not in self._collected
        return (root / file).exists() and not renamed
