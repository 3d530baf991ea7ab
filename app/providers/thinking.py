"""Telling a model's thinking from its answer where an endpoint mixes both into one text."""

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkSplitter:
    """Splits off `<think>…</think>` at the start of an answer, however the pieces are cut.

    Only before the first visible text, and again after a closing tag: an answer which talks about
    such a tag further on keeps it. A tag that is never closed makes everything reasoning.
    """

    __slots__ = ("_held", "_inside", "_reasoning", "_started", "_thought")

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._inside = inside
        self._started = False
        self._thought = False
        self._reasoning: list[str] = []

    def feed(self, piece: str) -> str:
        """Return the visible part of what has come."""
        if self._started:
            return piece
        self._held += piece
        while self._inside or self._opens():
            self._inside = True
            end = self._held.find(_CLOSE)
            if end < 0:
                keep = _overlap(self._held, _CLOSE)
                cut = len(self._held) - keep
                self._reasoning.append(self._held[:cut])
                self._held = self._held[cut:]
                return ""
            self._reasoning.append(self._held[:end])
            self._held = self._held[end + len(_CLOSE) :]
            self._inside, self._thought = False, True
        return self._visible()

    def close(self) -> str:
        """Return what was held back in case it became a tag."""
        held, self._held = self._held, ""
        if self._inside:
            self._reasoning.append(held)
            return ""
        return held.lstrip() if self._thought else held

    @property
    def reasoning(self) -> str:
        """Return what was split off so far."""
        return "".join(self._reasoning)

    def _opens(self) -> bool:
        head = self._held.lstrip()
        if head.startswith(_OPEN):
            self._held = head[len(_OPEN) :]
            return True
        return False

    def _visible(self) -> str:
        head = self._held.lstrip()
        if _OPEN.startswith(head):
            return ""
        self._started = True
        shown = head if self._thought else self._held
        self._held = ""
        return shown


def _overlap(text: str, tag: str) -> int:
    """Return how many of the last characters may be the beginning of a tag."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
