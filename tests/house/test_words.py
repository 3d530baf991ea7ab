"""Nothing in the repository depends on, or tells of, the machine it was written on."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.house.source import ROOT

# Put together here so that this file does not contain them.
HOSTS = [".".join(h) for h in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]
PLACES = [rf"(?<![\w.-])/{name}/" for name in ("work", "home/\\w+", "Users", "root/\\w+")]
PATTERN = re.compile("|".join([*map(re.escape, HOSTS), *PLACES]))
# Words of other people, kept verbatim.
QUOTED = {"tests/data/cases.jsonl"}


def test_no_file_names_a_registry_host_or_a_place_of_one_machine() -> None:
    found = {
        f"{path}:{number}": match.group()
        for path in tracked()
        if path not in QUOTED
        for number, line in enumerate(_text(ROOT / path).splitlines(), 1)
        for match in [PATTERN.search(line)]
        if match
    }
    assert found == {}


def tracked() -> list[str]:
    """The files of the repository; without git, those that look like it."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        listed = subprocess.run(
            [git, "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        return [f for f in listed.stdout.decode().split("\0") if f]
    tops = ("app", "tests", "docs", "migrations")
    found = (p for t in tops for p in (ROOT / t).rglob("*") if "__pycache__" not in p.parts)
    return [str(p.relative_to(ROOT)) for p in found if p.is_file()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return ""
