"""Everything explained: states, requests, replays, reasons, and the chain of the audit trail."""

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices
from app.api.shapes.bodies import NothingIn, checked
from app.api.shapes.explaining import ChainList, ExplanationOut, ReplayOut, RequestOut, StateOut
from app.api.wire import describing, params
from app.api.wire.answers import as_json
from app.api.wire.body import read_object
from app.api.wire.routing import Keeps, Operation


class ExplainRoutes:
    """The operations that look into sessions and change nothing."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def state(self, request: Request) -> Response:
        """Return the folded state after an event."""
        session_id, at_seq = params.path_id(request, "session"), params.seq(request, "at_seq")
        return as_json(await self._services.inquiry.state(TENANT, session_id, at_seq))

    async def messages(self, request: Request) -> Response:
        """Return what the model was last sent."""
        return as_json(
            await self._services.inquiry.messages(TENANT, params.path_id(request, "session"))
        )

    async def why(self, request: Request) -> Response:
        """Return why the session is as it is."""
        return as_json(await self._services.inquiry.why(TENANT, params.path_id(request, "session")))

    async def replay(self, request: Request) -> Response:
        """Decide the journal again."""
        session_id = params.path_id(request, "session")
        content = await read_object(request, self._services.body_limit, optional=True)
        checked(NothingIn, content)
        return as_json(await self._services.inquiry.replay(TENANT, session_id))

    async def verify(self, request: Request) -> Response:
        """Verify the chain of one session, or of a page of them."""
        limit, after = params.limit(request), params.cursor(request, "session")
        session_id = params.text_filter(request, "session")
        inquiry = self._services.inquiry
        if session_id is not None:
            shown, following = [await inquiry.verify(TENANT, session_id)], None
        else:
            shown, following = await inquiry.verify_page(TENANT, after, limit)
        intact = all(one["intact"] is True for one in shown)
        return as_json({"intact": intact, "data": shown, "next": following})

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._of_session(), *self._of_trail())

    def _of_session(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/v1/sessions/{id}/state",
                id="getState",
                summary="The state which the journal amounts to after an event",
                detail="Folded from the journal alone, as a worker does that takes over there.",
                endpoint=self.state,
                tag="explain",
                answers=StateOut,
                parameters=(describing.SESSION_ID, describing.AT_SEQ),
                refuses=(404, 409, 422),
            ),
            Operation(
                method="GET",
                path="/v1/sessions/{id}/messages",
                id="getMessages",
                summary="What the model was last sent",
                detail="Made again from the journal; `intact` says whether it is the same.",
                endpoint=self.messages,
                tag="explain",
                answers=RequestOut,
                parameters=(describing.SESSION_ID,),
                refuses=(404, 409),
            ),
            Operation(
                method="GET",
                path="/v1/sessions/{id}/why",
                id="explainSession",
                summary="Why the session is as it is, in sentences",
                endpoint=self.why,
                tag="explain",
                answers=ExplanationOut,
                parameters=(describing.SESSION_ID,),
                refuses=(404,),
            ),
        )

    def _of_trail(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/sessions/{id}/replay",
                id="replaySession",
                summary="Decide the whole journal again, offline",
                detail="Nothing is sent and nothing written. The first event which this release "
                "would decide otherwise is named.",
                endpoint=self.replay,
                keeps=Keeps.REPEATABLE,
                tag="explain",
                answers=ReplayOut,
                body=NothingIn,
                optional_body=True,
                parameters=(describing.SESSION_ID,),
                refuses=(404, 409),
            ),
            Operation(
                method="GET",
                path="/v1/audit/verify",
                id="verifyAudit",
                summary="Verify the hash chain of one session, or of a page of sessions",
                endpoint=self.verify,
                tag="explain",
                answers=ChainList,
                parameters=(describing.OF_SESSION, describing.LIMIT, describing.AFTER),
                refuses=(404,),
            ),
        )
