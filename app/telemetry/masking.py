"""Secrets never leave by a log line: masked by the name of a field and by their own value."""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

MASK: Final = "***"
_MASK_BYTES: Final = MASK.encode()
_SHORTEST: Final = 4
"""Shorter values would be found everywhere; they protect nothing."""

_NAMES: Final = re.compile(
    r"authorization|api[-_]?key|secret|passw(or)?d|cookie|credential|private[-_]?key"
    r"|encryption[-_]?key|admin[-_]?key|(^|[-_])token$|^key$",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(rb"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}")
_URL: Final = re.compile(rb"://([^/\s:@\"]*):([^/\s@\"]+)@")


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a field of this name is masked whatever it holds."""
    return _NAMES.search(name) is not None


def mask_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields with those masked whose names say that they are secret, at any depth."""
    return {
        key: MASK if is_secret_name(str(key)) else _mask_value(value)
        for key, value in fields.items()
    }


def _mask_value(value: object) -> object:
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return mask_fields(value)
    if isinstance(value, list | tuple):
        return [_mask_value(item) for item in value]
    return value


class Masker:
    """Replaces known secrets in rendered text, however they were written into it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Take the values of the configured secrets."""
        forms: set[bytes] = set()
        for secret in secrets:
            if len(secret) >= _SHORTEST:
                forms.add(secret.encode())
                forms.add(quote(secret, safe="").encode())
                forms.add(json.dumps(secret)[1:-1].encode())
                forms.add(json.dumps(secret, ensure_ascii=False)[1:-1].encode())
        self._forms = sorted(forms, key=len, reverse=True)

    def line(self, line: bytes) -> bytes:
        """Return a rendered line without any known secret, credential header or URL password."""
        for form in self._forms:
            if form in line:
                line = line.replace(form, _MASK_BYTES)
        if b"://" in line:
            line = _URL.sub(rb"://\1:***@", line)
        return _SCHEME.sub(rb"\1\2***", line)

    def text(self, text: str) -> str:
        """Return a text without any known secret."""
        return self.line(text.encode("utf-8", "replace")).decode()
