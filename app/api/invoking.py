"""The dry run of a tool: the same reading, checking and sending as in a session, without one."""

import json
from typing import Final

from app.api.deps import TENANT, ApiServices
from app.core import ids
from app.core.events import EffectClass, Limits, Outcome
from app.core.faults import Fault, FaultClass, FaultKind, classify
from app.core.toolbox import ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import ToolRequest
from app.runtime.sessions.idempotency import Answer
from app.runtime.views import to_json

_TIMEOUT_S: Final = Limits().tool_timeout_s
LONGEST_S: Final = 3600.0
"""The longest timeout that a tool can have."""
_NO_VALUE: Final = object()


async def invoke(
    services: ApiServices, spec: ToolSpec, arguments: dict[str, object], traceparent: str | None
) -> Answer:
    """Run one attempt and return what came of it; that a tool fails is an answer, not an error."""
    checked = await services.argument_reader.read(spec, json.dumps(arguments, ensure_ascii=False))
    if checked.arguments is None:
        fault = checked.fault or Fault.of(FaultKind.INVALID_ARGS, "The arguments cannot be used.")
        return _answer(Outcome.ERROR, fault=fault)
    clock = services.clock
    run_id = ids.mint("inv", at_us=clock.now_us(), entropy=clock.entropy(10))
    request = ToolRequest(
        tenant=TENANT,
        spec=spec,
        arguments=checked.arguments,
        key=f"invoke:{run_id}",
        traceparent=traceparent or _new_trace(services),
        timeout_s=timeout_s(spec),
    )
    began_s = clock.boot_s()
    try:
        reply = await services.tool_port.run(request)
    except ToolFailure as failure:
        took_s = clock.boot_s() - began_s
        return _answer(_outcome(spec, failure.fault), fault=failure.fault, took_s=took_s)
    took_s = clock.boot_s() - began_s
    return _answer(Outcome.OK, output=reply.output, took_s=took_s)


def timeout_s(spec: ToolSpec) -> float:
    """Return after how long a dry run of the tool is over."""
    return _TIMEOUT_S if spec.timeout_s is None else spec.timeout_s


def _outcome(spec: ToolSpec, fault: Fault) -> Outcome:
    """Say `unknown` where nobody can tell whether a call that must not be repeated happened."""
    uncertain = fault.kind is FaultKind.UNKNOWN_OUTCOME or (
        spec.effect is EffectClass.ONCE and fault.sent and classify(fault) is FaultClass.TRANSIENT
    )
    return Outcome.UNKNOWN if uncertain else Outcome.ERROR


def _answer(
    outcome: Outcome,
    *,
    output: object = _NO_VALUE,
    fault: Fault | None = None,
    took_s: float = 0.0,
) -> Answer:
    shown: dict[str, object] = {"outcome": outcome.value}
    if output is not _NO_VALUE:
        shown["output"] = output
    if fault is not None:
        shown["error"] = {
            "kind": fault.kind.value,
            "message": fault.message,
            "retry_hint": fault.retry_hint.value,
        }
    shown["duration_ms"] = round(took_s * 1000, 3)
    return Answer(200, to_json(shown))


def _new_trace(services: ApiServices) -> str:
    entropy = services.clock.entropy
    return f"00-{entropy(16).hex()}-{entropy(8).hex()}-01"
