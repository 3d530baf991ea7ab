"""What became of a call whose answer was lost: a tool's status check and its answer (TOOL-10).

2xx          it happened, and the body is its result; a body with `"happened": true|false|null`
             says so itself (false: it did not, null: nobody knows), its `output` is the result
202          not known yet
404, 410     it did not happen
all others   no answer: a fault, and whoever asked decides whether to ask again
"""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import HttpTemplate, ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import StatusReply, ToolReply
from app.tools.present import present
from app.tools.received import Received, fault_of, value_of
from app.tools.templates import Outgoing, build

KEY: Final = "idempotency_key"
"""The name under which a status check's template finds the key of the call."""

_NEVER: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_SAYS: Final = "happened"


def question(
    spec: ToolSpec,
    template: HttpTemplate,
    arguments: Mapping[str, Json],
    key: str,
    secrets: Mapping[str, str],
) -> Outgoing:
    """Return the request that asks for the outcome of the call under this key.

    Nothing goes along but what the template names: a lookup is no second call.

    Raises:
        ToolFailure: when an argument does not fit its place, or a secret is not set.

    """
    properties = spec.parameters.get("properties")
    known = {*(properties if isinstance(properties, Mapping) else ()), KEY}
    told = {**arguments, KEY: key}
    exact = replace(template, query=template.query or {})
    return build(exact, told, known=known, secrets=secrets, whole_body=False)


def status_of(received: Received, host: str, max_chars: int, now_us: int) -> StatusReply:
    """Return what an answer says.

    Raises:
        ToolFailure: when it says nothing about the call.

    """
    status = received.status
    if status in _NEVER:
        return StatusReply(happened=False, detail=f"{host} knows of no such call (HTTP {status}).")
    fault = fault_of(received, host, now_us)
    if fault is not None:
        raise ToolFailure(fault)
    if status == HTTPStatus.ACCEPTED:
        return StatusReply(None, detail=f"{host} has not finished the call (HTTP 202).")
    value = value_of(received)
    if isinstance(value, dict) and _SAYS in value:
        return _in_words(value, host, max_chars)
    reply = present(value, max_chars, cut_off=received.cut_off)
    return _carried_out(reply, host)


def _in_words(value: Mapping[str, Json], host: str, max_chars: int) -> StatusReply:
    match value[_SAYS]:
        case True:
            return _carried_out(present(value.get("output", value), max_chars), host)
        case False:
            return StatusReply(happened=False, detail=f"{host} did not carry it out.")
        case None:
            return StatusReply(None, detail=f"{host} does not know.")
        case _:
            message = f"{host} answered with a '{_SAYS}' that is no boolean."
            raise ToolFailure(Fault.of(FaultKind.INTERNAL, message))


def _carried_out(reply: ToolReply, host: str) -> StatusReply:
    detail = f"{host} carried it out."
    return StatusReply(happened=True, output=reply.output, detail=detail, content=reply.content)
