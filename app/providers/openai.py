"""An endpoint that speaks OpenAI's chat completions: one attempt, bounded as a whole."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

import aiohttp

from app.core.faults import Fault, FaultKind
from app.core.toolbox import FINISH
from app.providers.assemble import Assembler, Expected
from app.providers.config import ModelConfig
from app.providers.failures import FailureReader, unavailable
from app.providers.pool import Pool
from app.providers.reading import limited, read_answer
from app.providers.wire import ToolWriter, request_body, used_ids
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply, ModelRequest
from app.runtime.ports.process import Clock

_MOST_ERROR_BYTES: Final = 64 * 1024
_OPTIONAL: Final = {
    "stream_options": ("stream_options", "include_usage"),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "temperature": ("temperature",),
}
"""Fields that are left out for an endpoint which refuses them, and how a refusal names them."""

_SUCCESS: Final = range(200, 300)
_BAD_REQUEST: Final = frozenset({400, 422})
_UNSENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientSSLError,
    aiohttp.InvalidURL,
)


class Log(Protocol):
    """Writes a structured line."""

    def __call__(self, event: str, **fields: object) -> None:
        """Write it."""


class OpenAIEndpoint:
    """One model behind one endpoint."""

    def __init__(
        self, config: ModelConfig, *, pool: Pool, writer: ToolWriter, clock: Clock, log: Log
    ) -> None:
        self._config = config
        self._pool = pool
        self._writer = writer
        self._clock = clock
        self._log = log
        self._url = config.base_url.rstrip("/") + "/chat/completions"
        self._failures = FailureReader(config.name, config.api_key, config.key_name)
        self._without: set[str] = set()
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "User-Agent": "surefoot",
        }
        if config.api_key:
            self._headers["Authorization"] = f"Bearer {config.api_key}"

    async def answer(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Make one attempt, however it may end within the request's deadline."""
        try:
            async with asyncio.timeout(request.deadline_s):
                return await self._attempt(request, on_delta)
        except _UNSENT as problem:
            message = f"The model endpoint of {self._config.name!r} cannot be reached: {problem}"
            raise unavailable(message, sent=False) from None
        except TimeoutError:
            message = f"The model did not answer within {request.deadline_s:g} s."
            raise ModelFailure(Fault.of(FaultKind.TIMEOUT, message)) from None
        except aiohttp.ClientError as problem:
            reason = str(problem) or type(problem).__name__
            message = f"The connection to the model endpoint of {self._config.name!r} broke: "
            raise unavailable(message + reason) from None

    async def _attempt(
        self, request: ModelRequest, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        """Ask; once more at once, when it is only that an optional field is not taken (C041)."""
        now = asyncio.get_running_loop().time
        headers = {**self._headers, "traceparent": request.traceparent}
        dropped: list[str] = []
        while True:
            without = frozenset(self._without)  # others may learn of more while this one is out
            body = request_body(request, self._config, self._writer, without)
            assembler = Assembler(self._expected(request), self._failures, now, on_delta)
            response = await self._pool.session().post(
                self._url, data=body, headers=headers, allow_redirects=False
            )
            try:
                if response.status in _SUCCESS:
                    await read_answer(response, assembler)
                    return assembler.reply(self._config.name, dropped)
                dropped.append(await self._refused(response, without))
            finally:
                # Closes the connection, unless the answer was read to its end.
                response.release()

    def _expected(self, request: ModelRequest) -> Expected:
        known = {spec.wire_name for spec in request.tools} | {FINISH}
        return Expected(known, used_ids(request.messages), self._config.profile)

    async def _refused(self, response: aiohttp.ClientResponse, without: Collection[str]) -> str:
        """Return the field that is left out from now on; raise when that cannot mend it."""
        body = await limited(response, _MOST_ERROR_BYTES)
        failure = self._failures.from_status(
            response.status, response.headers, body, self._clock.now_us()
        )
        field = self._unwanted(response.status, self._failures.message_of(body), without)
        if field is None or failure.fault.kind is not FaultKind.REFUSED_REQUEST:
            raise failure
        self._without.add(field)
        self._log("model.field_dropped", model=self._config.name, field=field)
        return field

    def _unwanted(self, status: int, message: str, without: Collection[str]) -> str | None:
        """Return the optional field that a refusal names, if it was sent."""
        if status not in _BAD_REQUEST:
            return None
        sent = {"stream_options", *self._config.parameters}.difference(without)
        named = (f for f, words in _OPTIONAL.items() if any(word in message for word in words))
        return next((field for field in named if field in sent), None)
