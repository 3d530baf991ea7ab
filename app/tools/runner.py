"""The tools port: one attempt at one call, whatever kind of tool it is."""

import asyncio
from typing import assert_never

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ToolKind
from app.runtime.errors import ToolFailure, Withheld
from app.runtime.ports.tools import StatusReply, ToolReply, ToolRequest
from app.tools.builtin import Builtins
from app.tools.http import HttpTools
from app.tools.present import present


class Tools:
    """Carries tools out (a `ToolPort`). Whatever goes wrong inside one becomes a `ToolFailure`."""

    def __init__(self, *, http: HttpTools, builtins: Builtins) -> None:
        self._http = http
        self._builtins = builtins

    async def aclose(self) -> None:
        """Close the connections of the HTTP tools."""
        await self._http.aclose()

    async def run(self, request: ToolRequest) -> ToolReply:
        """Run one attempt, within its timeout.

        Raises:
            ToolFailure: with the fault and whether it may have been sent.
            Withheld: when it might not be sent any more.

        """
        try:
            return await self._dispatch(request)
        except (ToolFailure, Withheld):
            raise
        except asyncio.CancelledError as error:
            if _cancelled_from_outside():
                raise
            raise _internal(request, error) from None
        except Exception as error:  # a defect in one tool must not take its siblings down (C088)
            raise _internal(request, error) from error

    async def check(self, request: ToolRequest) -> StatusReply:
        """Ask the tool whether a call under this key took effect, within the timeout.

        Raises:
            ToolFailure: when it cannot be asked now, or has no status check.
            Withheld: when it might not be asked any more.

        """
        try:
            return await self._http.check(request)
        except (ToolFailure, Withheld):
            raise
        except asyncio.CancelledError as error:
            if _cancelled_from_outside():
                raise
            raise _internal(request, error) from None
        except Exception as error:  # what breaks here must not end the session either (C088)
            raise _internal(request, error) from error

    async def _dispatch(self, request: ToolRequest) -> ToolReply:
        match request.spec.kind:
            case ToolKind.HTTP:
                return await self._http.run(request)
            case ToolKind.BUILTIN:
                output: Json = self._builtins.run(request.spec.name, request.arguments)
                return present(output, request.spec.max_chars)
            case ToolKind.CLIENT:
                message = f"{request.spec.name} is carried out by the client, not by the service."
                raise ToolFailure(Fault.of(FaultKind.INTERNAL, message, sent=False))
            case unreachable:
                assert_never(unreachable)


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _internal(request: ToolRequest, error: BaseException) -> ToolFailure:
    """Return a failure that names the type of an unexpected error, not its text or trace."""
    message = f"{request.spec.name} failed inside ({type(error).__name__})."
    return ToolFailure(Fault.of(FaultKind.INTERNAL, message))
