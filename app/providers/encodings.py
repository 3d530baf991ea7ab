"""Tokenizers from files that come with the package: checked by hash, and nothing is fetched."""

import hashlib
import threading
from base64 import b64decode
from pathlib import Path
from typing import Final

import tiktoken

_DATA: Final = Path(__file__).parent / "data"
_HASHES: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_ENDING: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
ALTERNATIVES: Final = {
    "o200k_base": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ),
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}++",
        r"\p{N}{1,3}+",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
        r"\s++$",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s",
    ),
}
"""How each encoding cuts text before merging: part of its definition, as the ranks are."""
ENCODINGS: Final = frozenset(_HASHES)
"""The encodings there are."""


class EncodingDataError(Exception):
    """An encoding's file is missing or is not what it should be."""


class Encodings:
    """Loads each encoding once, in whatever thread asks first.

    That takes a quarter of a second, most of it holding the interpreter: it is for the start of the
    process.
    """

    def __init__(self, data: Path = _DATA) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._loaded: dict[str, tiktoken.Encoding] = {}

    def loaded(self, name: str) -> tiktoken.Encoding | None:
        """Return an encoding if it is loaded."""
        return self._loaded.get(name)

    def load(self, name: str) -> tiktoken.Encoding:
        """Return an encoding, loading it when need be.

        Raises:
            EncodingDataError: when there is none of this name, or its file is damaged.

        """
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = _build(name, self._read(name))
            return self._loaded[name]

    def _read(self, name: str) -> bytes:
        if name not in ENCODINGS:
            raise EncodingDataError(f"no encoding {name!r}; there are {sorted(ENCODINGS)}")
        path = self._data / f"{name}.tiktoken"
        try:
            data = path.read_bytes()
        except OSError as problem:
            raise EncodingDataError(f"cannot read {path}: {problem}") from None
        if hashlib.sha256(data).hexdigest() != _HASHES[name]:
            raise EncodingDataError(f"{path} is damaged: its sha256 is not {_HASHES[name]}")
        return data


def _build(name: str, data: bytes) -> tiktoken.Encoding:
    """Return the encoding without special tokens, since text is never taken for one."""
    lines = (line.split() for line in data.splitlines())
    # A comprehension, not one call in C, so that other threads get their turn in between.
    ranks = {b64decode(token): int(rank) for token, rank in lines}
    pattern = "|".join(ALTERNATIVES[name])
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
