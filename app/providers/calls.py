"""Tool calls from the many ways in which endpoints write them, streamed or whole."""

import json
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from app.core.canonical import Json
from app.providers.failures import unavailable
from app.providers.text import clean
from app.runtime.ports.models import RawCall

MOST_CALLS: Final = 128
"""Calls in one answer. No model means more; each costs the session two events and a message."""

_MINTED: Final = "call_{}"


class _Call:
    """One call as it grows."""

    __slots__ = ("arguments", "name", "wire_id")

    def __init__(self) -> None:
        self.wire_id = ""
        self.name = ""
        self.arguments: list[str] = []

    def add_name(self, piece: str, known: Collection[str]) -> None:
        """Append a piece of the name, unless it repeats it; a name that is offered wins."""
        if piece == self.name:
            return
        joined = self.name + piece
        if joined in known or self.name not in known:
            self.name = joined

    def add_arguments(self, value: Json) -> None:
        """Append a piece of text; an object is the whole, null is nothing."""
        if isinstance(value, str):
            self.arguments.append(value)
        elif value is not None:
            self.arguments = [json.dumps(value, ensure_ascii=False)]

    def is_complete(self) -> bool:
        """Return whether the arguments are a JSON object already, so that no more can belong."""
        last = next((piece for piece in reversed(self.arguments) if piece.strip()), "")
        if not last.rstrip().endswith("}"):
            return False
        self.arguments = ["".join(self.arguments)]  # asked at every delta: join each piece once
        try:
            return isinstance(msgspec.json.decode(self.arguments[0]), dict)
        except ValueError:
            return False


class CallAssembler:
    """Gathers the calls of one answer, in the order in which they began.

    What tells one call from the next differs: mostly `index`, but it may be missing, or 0 for all;
    ids may be missing, or repeated on every delta, or equal for two calls.
    """

    __slots__ = ("_by_index", "_calls", "_known")

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_delta(self, entry: Json) -> None:
        """Take one entry of a delta's `tool_calls`."""
        if isinstance(entry, dict):
            call = self._call_of(entry) or self._begin(entry)
            self._extend(call, entry)

    def add_whole(self, entry: Json) -> None:
        """Take one entry of a message's `tool_calls`: always a call of its own."""
        if isinstance(entry, dict):
            self._extend(self._begin(entry), entry)

    def finished(self, taken: Collection[str]) -> tuple[RawCall, ...]:
        """Return the calls; ids that are missing or used before (`taken`) are replaced."""
        used = set(taken)
        return tuple(self._with_own_id(call, used) for call in self._calls if call.name)

    def _call_of(self, entry: dict[str, Json]) -> _Call | None:
        wire_id, function = _id_of(entry), _function_of(entry)
        index = entry.get("index")
        call = self._place(index if isinstance(index, int) else None, wire_id)
        if call is None or _begins_again(call, function):
            return None
        name = function.get("name")
        nameless = not wire_id and index is None
        if nameless and name != call.name and name in self._known and call.name in self._known:
            return None
        return call

    def _place(self, index: int | None, wire_id: str) -> _Call | None:
        """Return the call that a delta with this index and id goes on with."""
        if index is not None:
            call = self._by_index.get(index)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or not wire_id or wire_id == call.wire_id:
            return call
        if not call.wire_id and not call.name:
            return call
        same = (c for c in reversed(self._calls) if c.wire_id == wire_id)
        return next(same, None)

    def _begin(self, entry: dict[str, Json]) -> _Call:
        if len(self._calls) == MOST_CALLS:
            message = f"The model asked for more than {MOST_CALLS} tool calls in one answer."
            raise unavailable(message)
        call = _Call()
        self._calls.append(call)
        index = entry.get("index")
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _extend(self, call: _Call, entry: dict[str, Json]) -> None:
        call.wire_id = call.wire_id or _id_of(entry)
        function = _function_of(entry)
        name = function.get("name")
        if isinstance(name, str) and name:
            call.add_name(name, self._known)
        call.add_arguments(function.get("arguments"))

    def _with_own_id(self, call: _Call, used: set[str]) -> RawCall:
        wire_id = clean(call.wire_id)
        if not wire_id or wire_id in used:
            wire_id = next(i for i in _minted(len(used)) if i not in used)
        used.add(wire_id)
        return RawCall(wire_id, clean(call.name.strip()), clean("".join(call.arguments)))


def _id_of(entry: dict[str, Json]) -> str:
    wire_id = entry.get("id")
    return "" if wire_id is None else str(wire_id)


def _function_of(entry: dict[str, Json]) -> dict[str, Json]:
    """Return the part with name and arguments, which some endpoints do not nest."""
    function = entry.get("function")
    return function if isinstance(function, dict) else entry


def _begins_again(call: _Call, function: dict[str, Json]) -> bool:
    """Return whether this is another call, since the one so far has all its arguments."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return call.is_complete()
    begins = isinstance(arguments, str) and arguments.lstrip().startswith("{")
    return begins and call.is_complete()


def _minted(start: int) -> Iterator[str]:
    number = start
    while True:
        number += 1
        yield _MINTED.format(number)
