"""The ids that tests can prove, and the record of what they proved."""

import json
import re
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "docs" / "requirements.md"
CASES = ROOT / "tests" / "data" / "cases.jsonl"
RESULTS = Path(".requirements/results.json")

_LINE = re.compile(r"^\| ([A-Z][A-Z0-9]*-\d+) \| (.*) \|[^|]*\|$", re.MULTILINE)


class Entry(TypedDict):
    """One test: what it proves, and its outcome (`passed`, `failed`, `skipped`)."""

    ids: list[str]
    outcome: str


Results = dict[str, Entry]


def requirements() -> dict[str, str]:
    """Every requirement by id, in the order of the page."""
    return dict(_LINE.findall(REQUIREMENTS.read_text()))


def cases() -> dict[str, str]:
    """Every case by id."""
    lines = CASES.read_text().splitlines()
    return {case["id"]: case["symptom"] for case in map(json.loads, filter(None, lines))}


def known_ids() -> set[str]:
    """All of both."""
    return {*requirements(), *cases()}


def load(root: Path = ROOT) -> Results:
    """The record of earlier runs below `root`; empty when there is none."""
    try:
        loaded: Results = json.loads((root / RESULTS).read_text())
    except FileNotFoundError:
        return {}
    return loaded


def save(results: Results, root: Path = ROOT) -> None:
    """Replace the record, whole or not at all."""
    path = root / RESULTS
    path.parent.mkdir(exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    aside.replace(path)
