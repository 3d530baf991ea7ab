"""The models there are, behind the port of the runtime; the first one is the default."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from app.core.events import ModelRef
from app.core.faults import Fault, FaultKind
from app.providers.config import ModelConfig
from app.providers.demo import DEMO, DemoModel
from app.providers.openai import Log, OpenAIEndpoint
from app.providers.pool import Pool
from app.providers.schemas import plain_schema
from app.providers.wire import SchemaOf, ToolWriter
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.process import Clock


class _Answers(Protocol):
    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply: ...


def _silent(event: str, **fields: object) -> None:
    del event, fields


_NO_LOG: Final[Log] = _silent


class Models:
    """The `ModelPort`. Without any configured model there is the built-in `demo`.

    `schema_of` gives a tool's parameters as providers take them.
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        *,
        clock: Clock,
        schema_of: SchemaOf = plain_schema,
        log: Log = _NO_LOG,
    ) -> None:
        self._pool = Pool()
        self._writer = ToolWriter(schema_of)
        self._refs = {config.name: config.ref for config in configs}
        self._models: dict[str, _Answers] = {
            config.name: OpenAIEndpoint(
                config, pool=self._pool, writer=self._writer, clock=clock, log=log
            )
            for config in configs
        }
        if not configs:
            self._refs[DEMO.name] = DEMO
            self._models[DEMO.name] = DemoModel()

    def get(self, name: str | None) -> ModelRef | None:
        """Return a model's facts (None: the default model), or None when it is unknown."""
        return self.names()[0] if name is None else self._refs.get(name)

    def names(self) -> list[ModelRef]:
        """Return every model there is, the default first."""
        return list(self._refs.values())

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Buy one answer; text deltas go to the callback as they come."""
        model = self._models.get(request.model.name)
        if model is None:
            # A session is pinned to a model which the configuration no longer has.
            message = f"The model {request.model.name!r} is not configured."
            raise ModelFailure(Fault.of(FaultKind.REFUSED_REQUEST, message, sent=False))
        return await model.answer(request, on_delta)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
