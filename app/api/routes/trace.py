"""The trace of a session: page by page, or as it grows."""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.api.deps import TENANT, ApiServices
from app.api.shapes.sessions import EventList
from app.api.streams.sse import EventStream
from app.api.wire import describing, params
from app.api.wire.answers import page
from app.api.wire.routing import EventStreamResponse, Operation
from app.core.lifecycle import ALIVE, Status
from app.runtime.sealing import event_context
from app.runtime.views import to_json

PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page of the trace ends with the event that reaches this size, however many were asked for."""

_FOLLOW: Final = frozenset({"session", "turn"})


class TraceRoutes:
    """The operations on traces."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def events(self, request: Request) -> Response:
        """Return a page of the trace: the very bytes that were written."""
        session_id = params.path_id(request, "session")
        limit, after = params.limit(request), params.after_seq(request) or 0
        found = await self._services.sessions.get(TENANT, session_id)
        cipher = found.content
        sealed = await self._services.journal.read(session_id, after, limit, PAGE_BYTES)
        shown = [cipher.open(event.payload, event_context(event.seq)) for event in sealed]
        last = sealed[-1].seq if sealed else after
        # What was written since the row was read is for a later request.
        return page(shown, to_json(last if sealed and last < found.row.head else None))

    async def stream(self, request: Request) -> ASGIApp:
        """Return the trace as it grows; 204 when it will not grow and all of it is read."""
        session_id = params.path_id(request, "session")
        asked = params.after_seq(request) or 0
        last = params.last_event_id(request)
        forever = params.choice(request, "follow", _FOLLOW) == "session"
        found = await self._services.sessions.get(TENANT, session_id)
        row = found.row
        after = min(asked if last is None else last, row.head)
        forever = forever and row.status is not Status.CLOSED
        if after >= row.head and not forever and row.status not in ALIVE:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        frames = self._services.follower.follow(session_id, found.content, after, forever=forever)
        return EventStream(
            frames,
            draining=self._services.draining,
            places=self._services.places,
            seat=self._services.audience.seat(row),
            instance=request.scope["path"],
            head=row.head,
        )

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (
            Operation(
                method="GET",
                path="/v1/sessions/{id}/stream",
                id="streamSession",
                summary="Follow the trace as Server-Sent Events",
                detail="Events have their `seq` as id. A `Last-Event-ID` goes before `after`; one "
                "that is no number is ignored, one beyond the end counts as the end.",
                endpoint=self.stream,
                tag="trace",
                kind=EventStreamResponse,
                also={204: "All is read, and no turn is alive"},
                parameters=(
                    describing.SESSION_ID,
                    describing.AFTER_SEQ,
                    describing.FOLLOW,
                    describing.LAST_EVENT_ID,
                ),
                refuses=(404, 409),
            ),
            Operation(
                method="GET",
                path="/v1/sessions/{id}/events",
                id="listEvents",
                summary="Read a page of the trace",
                detail="A page ends early when its events are large; `next` is then set.",
                endpoint=self.events,
                tag="trace",
                answers=EventList,
                parameters=(describing.SESSION_ID, describing.AFTER_SEQ, describing.LIMIT),
                refuses=(404, 409),
            ),
        )
