"""What is declared, locked and shipped agrees."""

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source import ROOT, budget, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = [Requirement(d) for d in PROJECT["project"]["dependencies"]]
DEV = [Requirement(d) for d in PROJECT["dependency-groups"]["dev"]]
ENCODINGS = {
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base.tiktoken": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


def test_the_page_of_dependencies_lists_exactly_them() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    runtime, dev = (
        re.findall(r"^\| `([^`]+)` \| \S.* \|$", part, re.MULTILINE)
        for part in page.split("## For development")
    )
    assert sorted(runtime) == sorted(d.name for d in RUNTIME)
    assert sorted(dev) == sorted(d.name for d in DEV)


def test_no_excuse_for_an_unused_dependency_is_stale() -> None:
    """A dependency that app/ imports needs no line in deptry's DEP002 list any more."""
    deptry = PROJECT["tool"]["deptry"]
    names = deptry["package_module_name_map"]
    imported = {
        name.partition(".")[0]
        for m in modules()
        for node in m.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    stale = [
        name
        for name in deptry["per_rule_ignores"]["DEP002"]
        if names.get(name, name.replace("-", "_")) in imported
    ]
    budget(stale, "DEP002 in pyproject.toml excuses what is used")


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [("requirements.lock", [*RUNTIME, *DEV]), ("requirements-runtime.lock", RUNTIME)],
    ids=["all", "runtime"],
)
def test_the_lock_holds_every_dependency(lock: str, wanted: list[Requirement]) -> None:
    locked = _locked(lock)
    wrong = [
        str(d)
        for d in wanted
        if not d.specifier.contains(locked.get(canonicalize_name(d.name), "0"), prereleases=True)
    ]
    assert wrong == [], "run `make lock`"


def test_the_two_locks_agree() -> None:
    everything = _locked("requirements.lock")
    runtime = _locked("requirements-runtime.lock")
    assert {n: everything.get(n) for n in runtime} == runtime


def test_the_wheel_carries_code_and_data_and_no_tests(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name, digest in ENCODINGS.items():
            data = archive.read(f"app/providers/data/{name}")
            assert hashlib.sha256(data).hexdigest() == digest
    data_files = {
        str(p.relative_to(ROOT))
        for top in ("app", "migrations")
        for p in (ROOT / top).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert data_files <= names
    assert not [n for n in names if n.startswith(("tests/", "docs/", ".ci/"))]


def _locked(lock: str) -> dict[str, str]:
    lines = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}
