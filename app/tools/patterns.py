"""Regular expressions of schemas, in a linear-time engine: no pattern can pin the CPU."""

import functools
import re
from typing import Final, Protocol, cast

import re2

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class PatternError(ValueError):
    """A pattern which the linear-time engine does not take."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Return something when the pattern is found anywhere in the text."""


@functools.lru_cache(maxsize=2048)
def compiled(pattern: str) -> Pattern:
    r"""Return a pattern compiled; the `\uXXXX` of ECMA 262 is understood.

    Raises:
        PatternError: when the engine refuses it, saying why.

    """
    try:
        return cast("Pattern", re2.compile(_ESCAPED.sub(_to_re2, pattern), options=_OPTIONS))
    except (re2.error, UnicodeError) as error:
        raise PatternError(_reason(error)) from None


def _to_re2(match: re.Match[str]) -> str:
    return rf"\x{{{match[1]}}}" if match[1] else match[0]


def _reason(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return detail.decode(errors="replace") if isinstance(detail, bytes) else "not valid text"
