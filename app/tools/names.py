"""Names of tools, and the aliases under which providers are told of those they would refuse."""

import hashlib
import re
from typing import Final

BUILTIN_NAMES: Final = frozenset(
    {"calculate", "now", "finish", "ask_user", "python", "search", "read_artifact"}
)
_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNSAFE_RUN: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_LONGEST: Final = 200
_STEM: Final = 52


def name_problem(name: str) -> str | None:
    """Return why this cannot be a tool's name, or None."""
    if not name.strip():
        return "must not be empty"
    if len(name) > _LONGEST:
        return f"has {len(name)} characters; the most is {_LONGEST}"
    if name in BUILTIN_NAMES:
        return f"{name!r} is a built-in tool"
    if name != name.strip() or not name.isprintable():
        return "must have no control characters and no spaces around it"
    if "/" in name or name in {".", ".."}:
        return "must be usable as one segment of a URL path: no '/', not '.' or '..'"
    return None


def alias_for(name: str) -> str | None:
    """Return the provider-safe alias of a name, or None when the name itself is safe.

    It is the same for the same name always, and two names do not share one.
    """
    if _SAFE.fullmatch(name):
        return None
    stem = _UNSAFE_RUN.sub("_", name).strip("_-")[:_STEM] or "tool"
    return f"{stem}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
