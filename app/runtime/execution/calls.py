"""Reading an answer: the endpoint's raw calls become checked calls, `finish` the final answer.

Everything a decision needs of a tool (its effect class, groups, digests) is copied into the call
here, so that the journal alone says why the machine decided as it did.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from app.core.canonical import action_digest
from app.core.events import CallMade, EffectClass, Finish, Limits, ModelAnswered, Usage
from app.core.faults import Fault, FaultKind, Hint
from app.core.ids import call_id
from app.core.messages import AssistantMessage
from app.core.state import State
from app.core.toolbox import FINISH, ToolKind, ToolSpec, nearest
from app.runtime.ports.models import ModelReply, RawCall, Tokens
from app.runtime.ports.tools import ArgumentReader

_CUT_OFF = frozenset({"length", "max_tokens"})
_REPLACEMENT: Final = "\ufffd"


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Turns a model's reply into the event which the core decides upon."""

    arguments: ArgumentReader
    tokens: Tokens
    approval_ttl_s: float = 86_400.0

    async def read(
        self, state: State, reply: ModelReply, tools: Mapping[str, ToolSpec], attempt: int
    ) -> ModelAnswered:
        """Return the answer with its calls read and checked; `tools` is by the wire's names."""
        raw_calls = [call for call in reply.calls if call.name != FINISH]
        finishes = [call for call in reply.calls if call.name == FINISH]
        cut_off = reply.finish_reason in _CUT_OFF
        ids = _wire_ids(state, raw_calls)
        calls: list[CallMade] = []
        for index, (raw, ids_of_call) in enumerate(zip(raw_calls, ids, strict=True), start=1):
            minted = call_id(state.turn, state.step, index)
            calls.append(
                await self._read_call(
                    raw,
                    minted,
                    ids_of_call or minted,
                    tools,
                    state.limits,
                    cut_off=cut_off,
                )
            )
        finish = _finish(finishes[0]) if finishes and not calls else None
        size = await self._size(state, reply)
        return ModelAnswered(
            text=reply.text,
            tool_calls=tuple(calls),
            usage=await self._usage(state, reply, size),
            finish_reason=reply.finish_reason,
            tokens=size,
            model=reply.model,
            scratchpad=reply.reasoning,
            finish=finish,
            attempt=attempt,
            ttft_ms=reply.ttft_ms,
            dropped=reply.dropped,
        )

    async def _read_call(
        self,
        raw: RawCall,
        minted: str,
        wire_id: str,
        tools: Mapping[str, ToolSpec],
        limits: Limits,
        *,
        cut_off: bool,
    ) -> CallMade:
        spec = tools.get(raw.name)
        call = CallMade(minted, wire_id, raw.name, raw.arguments, None, effect=EffectClass.READ)
        if spec is None:
            return replace(call, fault=_unknown_tool(raw.name, tools), replay=_object(raw))
        call = replace(
            call,
            name=spec.name,
            version=spec.version,
            effect=spec.effect,
            timeout_s=limits.tool_timeout_s if spec.timeout_s is None else spec.timeout_s,
            max_attempts=spec.max_attempts,
            polling=spec.polling,
            serial_group=spec.serial_group,
            depends_on=spec.depends_on,
            approval_ttl_s=self.approval_ttl_s,
            client=spec.kind is ToolKind.CLIENT,
            checkable=spec.status_check is not None,
        )
        if cut_off:
            return replace(call, fault=_truncated(), replay=_object(raw))
        checked = await self.arguments.read(spec, raw.arguments)
        if checked.arguments is None:
            return replace(call, fault=checked.fault, replay=checked.replay)
        return replace(
            call,
            arguments=checked.arguments,
            needs_approval=checked.needs_approval,
            replay=checked.replay,
            digest=action_digest(spec.name, checked.arguments),
            loop_digest=action_digest(spec.name, checked.arguments, spec.loop_ignore),
        )

    async def _size(self, state: State, reply: ModelReply) -> int:
        parts = [reply.text, *(f"{call.name} {call.arguments}" for call in reply.calls)]
        text = "\n".join(part for part in parts if part)
        return await self.tokens.count(text, state.model.encoding) if text else 0

    async def _usage(self, state: State, reply: ModelReply, size: int) -> Usage:
        if reply.usage is not None:
            return replace(reply.usage, model_calls=1)
        reasoning = await self.tokens.count(reply.reasoning or "", state.model.encoding)
        return Usage(
            input_tokens=state.context_tokens,
            output_tokens=size + reasoning,
            model_calls=1,
            estimated=True,
        )


def _wire_ids(state: State, calls: Sequence[RawCall]) -> list[str | None]:
    """Return the endpoint's ids where they can be repeated to it, None where they cannot."""
    taken = {
        call.wire_id
        for message in state.history
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    ids: list[str | None] = []
    for call in calls:
        usable = bool(call.wire_id) and call.wire_id not in taken
        ids.append(call.wire_id if usable else None)
        taken.add(call.wire_id)
    return ids


def _unknown_tool(name: str, tools: Mapping[str, ToolSpec]) -> Fault:
    near = nearest(name, tools) or tuple(sorted(tools))[:5]
    there = f" There are: {', '.join(near)}." if near else " No tool can be used now."
    return Fault.of(FaultKind.NOT_FOUND, f"There is no tool named {name!r}.{there}")


def _truncated() -> Fault:
    return Fault.of(
        FaultKind.UNREADABLE_CALL,
        "The answer was cut off by the output limit (truncated), so this call was not made. "
        "Ask again with shorter arguments.",
        hint=Hint.SMALLER_SCOPE,
    )


def _object(raw: RawCall) -> str | None:
    """Return what is repeated to the endpoint in place of arguments which it would refuse."""
    try:
        return None if isinstance(msgspec.json.decode(raw.arguments), dict) else "{}"
    except (ValueError, RecursionError):  # no JSON, NaN, half a surrogate pair, nested too deep
        return "{}"


def _finish(raw: RawCall) -> Finish:
    """Return the final answer; what cannot be read as one is taken as its text."""
    try:
        given = json.loads(raw.arguments)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return Finish(raw.arguments)
    complete, missing = given.get("complete"), _text(given.get("missing"))
    return Finish(
        text=_text(given.get("text")),
        complete=complete if isinstance(complete, bool) else None,
        confidence=_confidence(given.get("confidence")),
        missing=missing or None,
    )


def _text(value: object) -> str:
    """Return a text as it can be stored: JSON's escapes may hold what the wire's bytes cannot."""
    if not isinstance(value, str):
        return ""
    paired = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return paired.replace("\0", _REPLACEMENT)


def _confidence(value: object) -> float | None:
    """Return a share from 0 to 1; anything else (NaN, a percentage, a whole novel) says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)
