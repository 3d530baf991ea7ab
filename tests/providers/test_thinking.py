"""Thinking and answer in one text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.thinking import ThinkSplitter

ANSWERS = [
    ("<think>secret plan</think>Hello", "Hello", "secret plan"),
    ("<think>never closed", "", "never closed"),
    ("<think>never closed </thi", "", "never closed </thi"),
    ("\n<think>a</think>\n\n<think>b</think>\n\nHello\n", "Hello\n", "ab"),
    ("The tag <think> is in here</think>.", "The tag <think> is in here</think>.", ""),
    ("  plain", "  plain", ""),
    ("<thinly", "<thinly", ""),
    ("<thi", "<thi", ""),
    ("", "", ""),
    ("<think></think>", "", ""),
]


def split(pieces: list[str], *, inside: bool = False) -> tuple[str, str]:
    splitter = ThinkSplitter(inside=inside)
    shown = "".join([splitter.feed(piece) for piece in pieces])
    return shown + splitter.close(), splitter.reasoning


@pytest.mark.case("C024")
@pytest.mark.parametrize(("text", "answer", "thought"), ANSWERS)
@given(data=st.data())
def test_thinking_is_kept_apart_however_it_is_cut(
    text: str, answer: str, thought: str, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(0, len(text))))
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    assert split(pieces) == (answer, thought)


def test_a_template_can_open_the_thinking_itself() -> None:
    assert split(["secret", " plan</th", "ink>\n\nHello"], inside=True) == ("Hello", "secret plan")


def test_visible_text_is_not_held_back() -> None:
    splitter = ThinkSplitter()
    assert [splitter.feed(p) for p in ("<", "b>", " bold", "<think>")] == [
        "",
        "<b>",
        " bold",
        "<think>",
    ]
