"""JSON pointers (RFC 6901)."""

from collections.abc import Iterable, Sequence


def pointer(path: Iterable[str | int]) -> str:
    """Return the pointer of a path of keys and indexes; the empty one is the whole document."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def pointer_within(value: object, path: Sequence[str | int], *, missing: bool = False) -> str:
    """Return the pointer of a validator's path, less the parts that name branches of a union.

    `missing` says that the last part names a field which is not there.
    """
    kept: list[str | int] = []
    for position, part in enumerate(path, start=1):
        if isinstance(value, dict) and (part in value or (missing and position == len(path))):
            kept.append(part)
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            kept.append(part)
            value = value[part] if part < len(value) else None
    return pointer(kept)
