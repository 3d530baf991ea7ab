"""The `Prompts` port over package data: files `<name>.v<number>.md`, read once, never changed."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.core.events import PromptRef

_HERE: Final = Path(__file__).parent
_FILE_NAME: Final = re.compile(r"(?P<name>[a-z0-9_-]+)\.v(?P<version>[1-9]\d*)\.md")
SECTIONS: Final = ("Role", "Task", "Tool rules", "Output format", "Safety", "Uncertainty")
"""The sections of a prompt, in the order in which they stand (PROMPT-5)."""


class UnknownPromptError(LookupError):
    """There is no such prompt, or not in this version."""


@dataclass(frozen=True, slots=True)
class PromptText:
    """One immutable version; its hash says that it is the one a session began with."""

    name: str
    version: int
    text: str
    sha256: str


class PackagedPrompts:
    """The prompts in a folder of the package."""

    def __init__(self, folder: Path = _HERE) -> None:
        self._versions = _read(folder)

    def text(self, name: str, version: int) -> str:
        """Return the text of a version.

        Raises:
            UnknownPromptError: when there is none.

        """
        return self.get(name, version).text

    def get(self, name: str, version: int | None = None) -> PromptText:
        """Return a version, the newest one by default."""
        versions = self._versions.get(name, {})
        found = versions.get(max(versions, default=0) if version is None else version)
        if found is None:
            wanted = name if version is None else f"{name} version {version}"
            raise UnknownPromptError(f"there is no prompt {wanted}")
        return found

    def ref(self, name: str, tokens: int) -> PromptRef:
        """Return the newest version as a session pins it; its tokens depend on the model."""
        prompt = self.get(name)
        return PromptRef(prompt.name, prompt.version, prompt.sha256, tokens)


def sections_of(text: str) -> tuple[str, ...]:
    """Return the headings of a prompt, in order."""
    return tuple(re.findall(r"^# (.+)$", text, re.MULTILINE))


def _read(folder: Path) -> Mapping[str, Mapping[int, PromptText]]:
    prompts: dict[str, dict[int, PromptText]] = {}
    for path in sorted(folder.glob("*.md")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is not None:
            text = path.read_text("utf-8").strip()
            number = int(match["version"])
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            prompt = PromptText(match["name"], number, text, sha256)
            prompts.setdefault(prompt.name, {})[number] = prompt
    return prompts
