"""Effects carried out: each becomes the input that answers it. Nothing is decided here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from app.core.canonical import Json, as_text, digest
from app.core.context import assemble, fault_text
from app.core.effects import CallModel, CallTool, CheckStatus, Effect, PrepareTurn
from app.core.events import Purpose, ToolRef, Trace
from app.core.faults import Fault, FaultKind
from app.core.ids import idempotency_key
from app.core.inputs import (
    Input,
    ModelFaulted,
    ModelReturned,
    StatusChecked,
    ToolFaulted,
    ToolReturned,
    TurnPrepared,
)
from app.core.state import State
from app.core.toolbox import ToolSpec
from app.runtime.catalog import Catalog
from app.runtime.errors import ModelFailure, StoreUnavailable, ToolFailure, Withheld
from app.runtime.execution.calls import AnswerReader
from app.runtime.ports.models import ModelPort, ModelRequest, Prompts, Tokens
from app.runtime.ports.process import Clock, Observer
from app.runtime.ports.tools import StatusReply, ToolPort, ToolReply, ToolRequest

MODEL_ATTEMPT_S: Final = 60.0
NOTABLE_CHARS: Final = 16
GO_ON: Final = "The limits were raised: go on with the task where you stopped."
_US: Final = 1_000_000


class LeaseInDoubtError(Exception):
    """An effect was not sent, since this process may no longer own the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Carries out effects through the ports. One for the whole process."""

    clock: Clock
    models: ModelPort
    tools: ToolPort
    catalog: Catalog
    prompts: Prompts
    tokens: Tokens
    reader: AnswerReader
    observer: Observer
    sample: Callable[[str], bool]
    pure: frozenset[str] = frozenset()
    """The tools that are pure functions; nobody can register one of these names."""

    def is_pure(self, effect: Effect) -> bool:
        """Return whether an effect is the first attempt at a call of a pure function."""
        return (
            isinstance(effect, CallTool) and effect.attempt == 1 and effect.call.name in self.pure
        )

    async def compute(self, tenant: str, state: State, effect: Effect) -> Input:
        """Return the input that answers a call of a pure function, which needs no lease.

        Raises:
            StoreUnavailable: when the tool's definition cannot be read now.

        """
        return await self.perform(tenant, state, effect, _nobody, _always)

    async def perform(
        self,
        tenant: str,
        state: State,
        effect: Effect,
        on_delta: Callable[[str], None],
        may_send: Callable[[], bool],
    ) -> Input:
        """Return the input that answers an effect; `may_send` is asked before anything goes out.

        Raises:
            LeaseInDoubtError: when it was not sent because our lease may be over.

        """
        match effect:
            case CallModel():
                await self._wait_until(effect.not_before_us, state)
                return await self._call_model(tenant, state, effect, on_delta, may_send)
            case CallTool():
                await self._wait_until(effect.not_before_us, state)
                return await self._call_tool(tenant, state, effect, may_send)
            case CheckStatus():
                await self._wait_until(effect.not_before_us, state)
                return await self._check_status(tenant, state, effect, may_send)
            case PrepareTurn():
                return await self._prepare_turn(tenant, state)
            case _:
                assert_never(effect)

    async def _wait_until(self, at_us: int, state: State) -> None:
        now = max(self.clock.now_us(), state.at_us)  # an earlier owner's clock may be ahead
        wait = at_us - now
        if wait > 0:
            await self.clock.sleep(wait / _US)

    async def _call_model(
        self,
        tenant: str,
        state: State,
        effect: CallModel,
        on_delta: Callable[[str], None],
        may_send: Callable[[], bool],
    ) -> Input:
        closing = effect.purpose is Purpose.CLOSING
        specs = () if closing else await self._specs(tenant, state.offered)
        request = ModelRequest(
            model=state.model,
            system=self.prompts.text(state.prompt.name, state.prompt.version),
            messages=assemble(state, effect.purpose),
            tools=specs,
            traceparent=self.observer.traceparent(state, effect.key),
            deadline_s=MODEL_ATTEMPT_S,
            offer_finish=not closing,
        )
        if not may_send():
            raise LeaseInDoubtError
        try:
            reply = await self.models.answer(request, on_delta)
        except ModelFailure as failure:
            now = self.clock.now_us()
            jitter = self.clock.jitter()
            return ModelFaulted(now, effect.key, failure.fault, jitter, failure.usage)
        known = {spec.wire_name: spec for spec in specs}
        answer = await self.reader.read(state, reply, known, effect.attempt)
        return ModelReturned(self.clock.now_us(), effect.key, answer)

    async def _specs(self, tenant: str, refs: tuple[ToolRef, ...]) -> tuple[ToolSpec, ...]:
        found = [await self.catalog.spec(tenant, ref) for ref in refs]
        return tuple(spec for spec in found if spec is not None)

    async def _call_tool(
        self, tenant: str, state: State, effect: CallTool, may_send: Callable[[], bool]
    ) -> Input:
        began_s = self.clock.boot_s()
        try:
            reply = await self._send(tenant, state, effect, may_send)
        except ToolFailure as failure:
            answer = await self._tool_faulted(state, effect, failure.fault, began_s)
            return replace(answer, flagged=failure.flagged)
        except (LeaseInDoubtError, StoreUnavailable):
            raise
        except (asyncio.CancelledError, Exception) as error:  # a tool's own bug is no fault of ours
            if is_cancelled():
                raise
            kind = type(error).__name__
            fault = Fault.of(FaultKind.INTERNAL, f"The tool {effect.call.name} failed ({kind}).")
            return await self._tool_faulted(state, effect, fault, began_s)
        return await self._tool_returned(state, effect, reply, began_s)

    async def _send(
        self, tenant: str, state: State, effect: CallTool, may_send: Callable[[], bool]
    ) -> ToolReply:
        """Send one attempt; the fence is looked at before anything, and again at the first byte."""
        request = await self._tool_request(tenant, state, effect, may_send)
        try:
            return await self.tools.run(request)
        except Withheld:
            raise LeaseInDoubtError from None

    async def _tool_request(
        self,
        tenant: str,
        state: State,
        effect: CallTool | CheckStatus,
        may_send: Callable[[], bool],
    ) -> ToolRequest:
        call = effect.call
        spec = await self.catalog.spec(tenant, ToolRef(call.name, call.version))
        if spec is None:
            raise ToolFailure(_missing(call.name))
        if not may_send():
            raise LeaseInDoubtError
        return ToolRequest(
            tenant=tenant,
            spec=spec,
            arguments=call.arguments or {},
            key=idempotency_key(state.session_id, call.call_id),
            traceparent=self.observer.traceparent(state, effect.key),
            timeout_s=call.timeout_s,
            may_send=may_send,
        )

    async def _check_status(
        self, tenant: str, state: State, effect: CheckStatus, may_send: Callable[[], bool]
    ) -> StatusChecked:
        """Ask the tool what became of a call; whatever goes wrong there, it is not known."""
        reply = StatusReply(None)
        fault: Fault | None = None
        try:
            request = await self._tool_request(tenant, state, effect, may_send)
            reply = await self.tools.check(request)
        except ToolFailure as failure:
            fault = failure.fault
        except Withheld:
            raise LeaseInDoubtError from None
        if fault is None and reply.detail:
            fault = Fault.of(FaultKind.UNKNOWN_OUTCOME, reply.detail)
        text = reply.content or ("" if reply.output is None else as_text(reply.output))
        return StatusChecked(
            at_us=self.clock.now_us(),
            key=effect.key,
            call_id=effect.call.call_id,
            happened=reply.happened,
            output=reply.output,
            tokens=await self.tokens.count(text, state.model.encoding),
            fault=fault,
            jitter=self.clock.jitter(),
            content=reply.content,
        )

    async def _tool_returned(
        self, state: State, effect: CallTool, reply: ToolReply, began_s: float
    ) -> ToolReturned:
        text = as_text(reply.output) if reply.content is None else reply.content
        empty, notable = weigh(reply.output, text)
        return ToolReturned(
            at_us=self.clock.now_us(),
            key=effect.key,
            call_id=effect.call.call_id,
            output=reply.output,
            content=reply.content,
            tokens=await self.tokens.count(text, state.model.encoding),
            digest=digest(reply.output),
            duration_ms=round((self.clock.boot_s() - began_s) * 1000, 3),
            empty=empty,
            notable=notable,
        )

    async def _tool_faulted(
        self, state: State, effect: CallTool, fault: Fault, began_s: float
    ) -> ToolFaulted:
        return ToolFaulted(
            at_us=self.clock.now_us(),
            key=effect.key,
            call_id=effect.call.call_id,
            fault=fault,
            tokens=await self.tokens.count(fault_text(fault), state.model.encoding),
            duration_ms=round((self.clock.boot_s() - began_s) * 1000, 3),
            jitter=self.clock.jitter(),
        )

    async def _prepare_turn(self, tenant: str, state: State) -> TurnPrepared:
        names = state.created.tools
        frozen = await self.catalog.freeze(tenant, names, state.model.encoding, lenient=True)
        return TurnPrepared(
            at_us=self.clock.now_us(),
            trace=mint_trace(self.clock, self.sample),
            tools=frozen.refs,
            tools_tokens=frozen.tokens,
            note=GO_ON,
            note_tokens=await self.tokens.count(GO_ON, state.model.encoding),
        )


def weigh(output: Json, text: str) -> tuple[bool, bool]:
    """Return whether a result is empty, and whether it is notable: the same twice says something.

    Short texts, numbers and truth values repeat by chance (LOOP-7).
    """
    empty = output in (None, "", [], {})
    plain = isinstance(output, bool | int | float) or output is None
    return empty, not plain and not empty and len(text) > NOTABLE_CHARS


def _nobody(_text: str) -> None:
    """Take a delta that no tool can make."""


def _always() -> bool:
    return True


def is_cancelled() -> bool:
    """Return whether the running task was told to end, and not just raised as if it were."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def mint_trace(clock: Clock, sample: Callable[[str], bool]) -> Trace:
    """Return a new trace with its root span, as W3C Trace Context shapes the ids."""
    trace_id = clock.entropy(16).hex()
    return Trace(trace_id, clock.entropy(8).hex(), sampled=sample(trace_id))


def _missing(name: str) -> Fault:
    message = f"The tool {name} was removed and cannot be called any more."
    return Fault.of(FaultKind.NOT_FOUND, message, sent=False)
