"""The prompt of the default agent, and how prompts of the package are found."""

import hashlib
import re
from pathlib import Path

import pytest

from app.prompts import PackagedPrompts, UnknownPromptError
from app.prompts.catalog import SECTIONS, sections_of
from app.providers.encodings import Encodings

AGENT = PackagedPrompts().text("agent", 1)
SAYS = [
    "Prefer tools to memory",
    "unsure, call a tool. Do not guess",
    "change the arguments",
    "Never repeat the same call",
    "in the user's language",
    "reply only:",
    "ask the user",
    "contradict each other",
    "output schema",
]


@pytest.mark.req("PROMPT-5")
def test_the_sections_stand_in_order() -> None:
    assert sections_of(AGENT) == SECTIONS


@pytest.mark.req("PROMPT-5")
@pytest.mark.parametrize("rule", SAYS)
def test_every_rule_is_said(rule: str) -> None:
    assert rule in AGENT


@pytest.mark.req("PROMPT-5", "PROMPT-7")
def test_it_is_short_and_holds_nothing_dynamic() -> None:
    assert len(Encodings().load("o200k_base").encode_ordinary(AGENT)) <= 450
    assert not re.search(r"\{\{|\}\}|\{\w+\}|20\d\d-\d\d", AGENT)


def test_it_is_pinned_by_its_hash() -> None:
    ref = PackagedPrompts().ref("agent", 437)
    assert (ref.name, ref.version, ref.tokens) == ("agent", 1, 437)
    assert ref.sha256 == hashlib.sha256(AGENT.encode()).hexdigest()


@pytest.mark.req("PROMPT-5")
def test_version_one_never_changes() -> None:
    """A changed text is a new version: sessions say by hash which one they ran on."""
    assert PackagedPrompts().ref("agent", 0).sha256.startswith("845211abb990a608")


def test_the_newest_version_is_found_by_name(tmp_path: Path) -> None:
    for version in (2, 10):
        (tmp_path / f"agent.v{version}.md").write_text(f"text {version}\n")
    (tmp_path / "notes.md").write_text("no prompt")
    prompts = PackagedPrompts(tmp_path)
    assert prompts.ref("agent", 1).version == 10
    assert prompts.text("agent", 2) == "text 2"


@pytest.mark.parametrize(("name", "version"), [("agent", 99), ("nobody", 1)])
def test_an_unknown_prompt_is_an_error(name: str, version: int) -> None:
    with pytest.raises(UnknownPromptError, match=f"{name} version {version}"):
        PackagedPrompts().text(name, version)
    with pytest.raises(UnknownPromptError, match="no prompt nobody"):
        PackagedPrompts().ref("nobody", 1)
