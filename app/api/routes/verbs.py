"""What is said to a session that exists: messages, resume, cancel, close, verifications."""

import json
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices
from app.api.keyed import attempted
from app.api.shapes.bodies import (
    ForkIn,
    MessageIn,
    NothingIn,
    ResumeIn,
    ToolResultIn,
    VerificationIn,
    checked,
)
from app.api.shapes.sessions import ReceiptOut, SessionOut
from app.api.wire import describing, params
from app.api.wire.answers import answer
from app.api.wire.body import read_object
from app.api.wire.routing import Keeps, Operation
from app.core.events import Policy
from app.runtime.sessions.answers import ClientResult
from app.runtime.sessions.forks import ForkWanted
from app.runtime.sessions.idempotency import Answer, Attempt

_OF_ONE = (describing.SESSION_ID,)


class VerbRoutes:
    """The operations that write into a session's inbox."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def message(self, request: Request) -> Response:
        """Give the session its next user message."""
        session_id, attempt, content = await self._read(request)
        body = checked(MessageIn, content)
        return answer(
            await self._services.sessions.message(
                TENANT, session_id, body.text, Policy(body.when_busy), attempt
            )
        )

    async def resume(self, request: Request) -> Response:
        """Let a turn go on."""
        session_id, attempt, content = await self._read(request)
        body = checked(ResumeIn, content)
        limits = None if body.limits is None else body.limits.given()
        return answer(await self._services.sessions.resume(TENANT, session_id, limits, attempt))

    async def cancel(self, request: Request) -> Response:
        """End the open turn."""
        return await self._ended(request, self._services.sessions.cancel)

    async def close(self, request: Request) -> Response:
        """End the session."""
        return await self._ended(request, self._services.sessions.close)

    async def _ended(
        self, request: Request, end: Callable[[str, str], Awaitable[Answer]]
    ) -> Response:
        session_id = params.path_id(request, "session")
        content = await read_object(request, self._services.body_limit, optional=True)
        checked(NothingIn, content)
        return answer(await end(TENANT, session_id))

    async def verify(self, request: Request) -> Response:
        """Take what a person knows of a call in doubt."""
        session_id, attempt, content = await self._read(request)
        body = checked(VerificationIn, content)
        return answer(
            await self._services.answers.verify(
                TENANT,
                session_id,
                body.call_id,
                body.output,
                attempt,
                happened=body.outcome == "happened",
            )
        )

    async def tool_result(self, request: Request) -> Response:
        """Take the result of a call which the client carried out."""
        session_id, attempt, content = await self._read(request)
        body = checked(ToolResultIn, content)
        result = ClientResult(call_id=body.call_id, output=body.output, error=body.error)
        return answer(await self._services.answers.tool_result(TENANT, session_id, result, attempt))

    async def fork(self, request: Request) -> Response:
        """Create a session that goes on from an event of this one."""
        session_id, attempt, content = await self._read(request)
        body = checked(ForkIn, content)
        given = body.tool_result
        prompts = body.prompts
        wanted = ForkWanted(
            at_seq=body.at_seq,
            task=body.task,
            model=body.model,
            prompts=None
            if prompts is None
            else {role: (prompt.name, prompt.version) for role, prompt in prompts.items()},
            result=None if given is None else (given.call_id, given.output),
        )
        made = await self._services.forks.fork(TENANT, session_id, wanted, attempt)
        return answer(made, location=f"/v1/sessions/{json.loads(made.body)['id']}")

    async def _read(self, request: Request) -> tuple[str, Attempt | None, Mapping[str, object]]:
        """Return the session's id, the attempt when the request has a key, and the body."""
        session_id = params.path_id(request, "session")
        return session_id, *await attempted(request, self._services, optional=True)

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._going_on(), *self._ending(), *self._answering())

    def _going_on(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/sessions/{id}/messages",
                id="sendMessage",
                summary="Send the next user message",
                endpoint=self.message,
                tag="sessions",
                status=202,
                answers=ReceiptOut,
                body=MessageIn,
                parameters=_OF_ONE,
                keeps=Keeps.ENDPOINT,
                refuses=(404, 409, 429),
            ),
            Operation(
                method="POST",
                path="/v1/sessions/{id}/resume",
                id="resumeSession",
                summary="Let a stopped, failed or orphaned turn go on",
                endpoint=self.resume,
                tag="sessions",
                status=202,
                answers=SessionOut,
                body=ResumeIn,
                optional_body=True,
                parameters=_OF_ONE,
                keeps=Keeps.ENDPOINT,
                refuses=(404, 409, 429),
            ),
        )

    def _ending(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/sessions/{id}/cancel",
                id="cancelSession",
                summary="End the open turn and return the settled session",
                detail="Idempotent by itself: a repeated cancel answers 200 again.",
                endpoint=self.cancel,
                tag="sessions",
                answers=SessionOut,
                body=NothingIn,
                optional_body=True,
                parameters=_OF_ONE,
                keeps=Keeps.REPEATABLE,
                refuses=(404, 409),
            ),
            Operation(
                method="POST",
                path="/v1/sessions/{id}/close",
                id="closeSession",
                summary="End the session: no further turn",
                detail="Idempotent by itself: a repeated close answers 200 again.",
                endpoint=self.close,
                tag="sessions",
                answers=SessionOut,
                body=NothingIn,
                optional_body=True,
                parameters=_OF_ONE,
                keeps=Keeps.REPEATABLE,
                refuses=(404, 409),
            ),
        )

    def _answering(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/sessions/{id}/tool_results",
                id="sendToolResult",
                summary="Give the result of a call which the client carried out",
                endpoint=self.tool_result,
                tag="sessions",
                status=202,
                answers=SessionOut,
                body=ToolResultIn,
                keeps=Keeps.ENDPOINT,
                parameters=_OF_ONE,
                refuses=(404, 409),
            ),
            Operation(
                method="POST",
                path="/v1/sessions/{id}/fork",
                id="forkSession",
                summary="Create a session that goes on from an event of this one",
                detail="Taken are the events up to `at_seq`, back to the last point at which a "
                "session can go on. Open calls are closed as cancelled, unless `tool_result` gives "
                "their result. In the first turn of the fork, calls that change the world wait for "
                "an approval.",
                endpoint=self.fork,
                tag="sessions",
                status=201,
                answers=SessionOut,
                body=ForkIn,
                keeps=Keeps.ENDPOINT,
                parameters=_OF_ONE,
                refuses=(404, 409, 429),
            ),
            Operation(
                method="POST",
                path="/v1/sessions/{id}/verifications",
                id="verifyCall",
                summary="Say whether a call of unknown outcome happened",
                endpoint=self.verify,
                tag="sessions",
                status=202,
                answers=SessionOut,
                body=VerificationIn,
                parameters=_OF_ONE,
                keeps=Keeps.ENDPOINT,
                refuses=(404, 409),
            ),
        )
