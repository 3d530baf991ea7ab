"""Events and states to bytes and back.

An event is encoded once; the same bytes are sealed, stored, chained and sent to readers. Text is
clean when it gets here (the border replaces what UTF-8 or JSON cannot carry); should some slip
through, it is replaced rather than refused, since an event that cannot be written stops a session.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Final, get_type_hints

import msgspec

from app.core.events import BODIES, Body, Event, PhaseEntered
from app.core.lifecycle import Phase
from app.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from app.core.state import State
from app.core.upcasters import UnreadableEventError, upcast
from app.runtime.times import from_rfc3339, rfc3339

_LONGEST_INT_BITS: Final = 14_000
"""Python refuses to print integers of more than 4300 digits."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ENCODER: Final = msgspec.json.Encoder()


def _any_value(_kind: type, value: object) -> object:
    """Accept a field that is annotated `object`: any JSON value."""
    return value


class _Wire(msgspec.Struct):
    seq: int
    type: str
    v: int
    at: str
    turn: int
    step: int
    phase: Phase | None
    data: msgspec.Raw


class _Move(msgspec.Struct):
    """`phase.entered` on the wire, where the fields have names that Python keeps for itself."""

    source: Phase | None = msgspec.field(name="from")
    target: Phase = msgspec.field(name="to")


_WIRE: Final = msgspec.json.Decoder(_Wire)
_MOVE: Final = msgspec.json.Decoder(_Move)
_BODIES: Final[Mapping[str, msgspec.json.Decoder[Body]]] = {
    kind: msgspec.json.Decoder(body, dec_hook=_any_value)
    for kind, body in BODIES.items()
    if body is not PhaseEntered
}


class JsonCodec:
    """The wire event as JSON; a state likewise."""

    def encode(self, event: Event) -> bytes:
        """Return the wire event."""
        body = event.body
        return _encode(
            {
                "seq": event.seq,
                "type": body.TYPE,
                "v": body.V,
                "at": rfc3339(event.at_us),
                "turn": event.turn,
                "step": event.step,
                "phase": event.phase,
                "data": _Move(body.source, body.target) if type(body) is PhaseEntered else body,
            }
        )

    def decode(self, payload: bytes) -> Event:
        """Return the event, lifted to today's version.

        Raises:
            UnreadableEventError: when the type or version is not known to this code.

        """
        wire = _WIRE.decode(payload)
        kind = BODIES.get(wire.type)
        if kind is None:
            raise UnreadableEventError(f"No event of type {wire.type} is known.")
        raw: msgspec.Raw | bytes = wire.data
        if wire.v != kind.V:
            data: dict[str, object] = msgspec.json.decode(wire.data)
            raw = _encode(upcast(wire.type, wire.v, data, to=kind.V))
        return Event(
            wire.seq,
            wire.turn,
            wire.step,
            wire.phase,
            from_rfc3339(wire.at),
            _body(wire.type, raw),
        )

    def encode_state(self, state: State) -> bytes:
        """Return a state; messages carry their kind, since their shapes alone do not tell."""
        fields = {name: getattr(state, name) for name in _STATE_FIELDS}
        fields["history"] = [(_KINDS[type(message)], message) for message in state.history]
        return _encode(fields)

    def decode_state(self, payload: bytes) -> State:
        """Return the state."""
        shape = _SHAPE.decode(payload)
        fields = {name: getattr(shape, name) for name in _STATE_FIELDS}
        fields["history"] = tuple(_MESSAGES[kind].decode(raw) for kind, raw in fields["history"])
        return State(**fields)


def _body(kind: str, raw: bytes | msgspec.Raw) -> Body:
    if kind == PhaseEntered.TYPE:
        move = _MOVE.decode(raw)
        return PhaseEntered(move.source, move.target)
    return _BODIES[kind].decode(raw)


_MESSAGES: Final[Mapping[str, msgspec.json.Decoder[Message]]] = {
    "user": msgspec.json.Decoder(UserMessage),
    "assistant": msgspec.json.Decoder(AssistantMessage),
    "tool": msgspec.json.Decoder(ToolMessage),
}
_KINDS: Final = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "tool"}
_STATE_FIELDS: Final = tuple(field.name for field in dataclasses.fields(State))
_HINTS: Final = {**get_type_hints(State), "history": list[tuple[str, msgspec.Raw]]}
_SHAPE: Final = msgspec.json.Decoder(
    msgspec.defstruct("_Shape", [(name, _HINTS[name]) for name in _STATE_FIELDS]),
    dec_hook=_any_value,
)


def _encode(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, ValueError, TypeError):
        return _ENCODER.encode(_clean(msgspec.to_builtins(value, enc_hook=str)))


def _clean(value: object) -> object:
    """Return a value that JSON can carry: what it cannot is replaced."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT_BITS:
        return hex(value)
    return value
