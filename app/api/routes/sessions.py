"""Sessions: create, list, and look at one."""

import json
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.deps import TENANT, ApiServices
from app.api.keyed import attempted
from app.api.shapes.bodies import SessionIn, checked
from app.api.shapes.sessions import SessionList, SessionOut
from app.api.streams.sse import EventStream
from app.api.streams.waiting import unless_draining
from app.api.wire import describing, params
from app.api.wire.answers import answer, as_json
from app.api.wire.routing import Keeps, Operation
from app.core.lifecycle import Status
from app.runtime.errors import StoreUnavailable
from app.runtime.paging import cut
from app.runtime.ports.sessions import SessionRow
from app.runtime.sessions.idempotency import Answer
from app.runtime.streams.follow import HEADS_S
from app.runtime.views import to_json

_STATUSES: Final = frozenset(status.value for status in Status)
_GOING_ON: Final = frozenset({Status.QUEUED, Status.RUNNING})


class SessionRoutes:
    """The operations on sessions as a whole."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def create(self, request: Request) -> ASGIApp:
        """Create a session; wait for it or stream it when asked to."""
        if params.wants_stream(request):
            self._services.places.check()  # a session that nobody can be shown is not begun
        attempt, content = await attempted(request, self._services)
        body = checked(SessionIn, content)
        body.check_built()
        wanted = body.wanted(params.traceparent(request))
        made = await self._services.creation.create(TENANT, wanted, attempt)
        session_id = made.session_id or str(json.loads(made.body)["id"])
        if params.wants_stream(request):
            return await self._stream_new(request, session_id)
        wait_s = params.wait_s(request)
        if wait_s is not None:
            return await self._waited(made, session_id, wait_s)
        return answer(made, location=_location(session_id))

    async def _stream_new(self, request: Request, session_id: str) -> EventStream:
        found = await self._services.sessions.get(TENANT, session_id)
        frames = self._services.follower.follow(session_id, found.content, 0)
        return EventStream(
            frames,
            draining=self._services.draining,
            places=self._services.places,
            seat=self._services.audience.seat(found.row),
            instance=request.scope["path"],
            headers=((b"location", _location(session_id).encode()),),
        )

    async def _waited(self, made: Answer, session_id: str, wait_s: int) -> Response:
        """Answer once the turn has ended or waits for somebody, or the time is over."""
        sessions, follower = self._services.sessions, self._services.follower
        seen: SessionRow | None = None

        async def settled() -> bool:
            nonlocal seen
            try:
                row = await sessions.row(TENANT, session_id)
            except StoreUnavailable:
                return False  # asked again soon: the client does not know the session's id yet
            if row.status in _GOING_ON and row.facts.turn <= 1:
                return False
            seen = row
            return True

        if wait_s:
            waiting = follower.until(session_id, settled, within_s=wait_s, look_s=HEADS_S)
            await unless_draining(waiting, self._services.draining)
        row = seen or await sessions.row(TENANT, session_id)
        status = HTTPStatus.CREATED if row.status in _GOING_ON else HTTPStatus.OK
        shown = to_json(sessions.shown(row))
        response = answer(
            Answer(status, shown, session_id, replayed=made.replayed),
            location=_location(session_id),
        )
        response.headers["Preference-Applied"] = f"wait={wait_s}"
        return response

    async def get(self, request: Request) -> Response:
        """Return a session."""
        sessions = self._services.sessions
        row = await sessions.row(TENANT, params.path_id(request, "session"))
        return as_json(sessions.seen(row))

    async def delete(self, request: Request) -> Response:
        """Erase a session's content; its chain of hashes stays."""
        await self._services.erasing.erase(TENANT, params.path_id(request, "session"))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def list(self, request: Request) -> Response:
        """Return a page of sessions, newest first."""
        limit = params.limit(request)
        rows = await self._services.store.page(
            TENANT,
            after=params.cursor(request, "session"),
            limit=limit + 1,
            status=params.choice(request, "status", _STATUSES),
            agent=params.text_filter(request, "agent"),
            tool=params.text_filter(request, "tool"),
        )
        found, following = cut(rows, limit)
        shown = [self._services.sessions.seen(row, without_key=True) for row in found]
        return as_json({"data": shown, "next": following})

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations, those asked for most often first."""
        return (
            Operation(
                method="POST",
                path="/v1/sessions",
                id="createSession",
                summary="Create a session and start its first turn",
                detail="`Prefer: wait=N` holds the answer until the turn has ended or waits (then "
                "200). `Accept: text/event-stream` answers with the session's stream.",
                endpoint=self.create,
                tag="sessions",
                status=201,
                answers=SessionOut,
                also={200: "The turn has ended or waits, or the stream begins"},
                body=SessionIn,
                parameters=(describing.PREFER,),
                keeps=Keeps.ENDPOINT,
                refuses=(409, 429),
            ),
            Operation(
                method="GET",
                path="/v1/sessions/{id}",
                id="getSession",
                summary="Look at a session",
                endpoint=self.get,
                tag="sessions",
                answers=SessionOut,
                parameters=(describing.SESSION_ID,),
                refuses=(404,),
            ),
            Operation(
                method="DELETE",
                path="/v1/sessions/{id}",
                id="eraseSession",
                summary="Erase a session's content",
                detail="Destroys its data key; an open turn is cancelled first. Idempotent.",
                endpoint=self.delete,
                tag="sessions",
                status=204,
                parameters=(describing.SESSION_ID,),
                refuses=(404, 409),
            ),
            Operation(
                method="GET",
                path="/v1/sessions",
                id="listSessions",
                summary="List sessions, newest first",
                endpoint=self.list,
                tag="sessions",
                answers=SessionList,
                parameters=(
                    describing.STATUS,
                    describing.AGENT,
                    describing.TOOL,
                    describing.LIMIT,
                    describing.AFTER,
                ),
            ),
        )


def _location(session_id: str) -> str:
    return f"/v1/sessions/{session_id}"
