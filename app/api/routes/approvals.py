"""Approvals: what waits for a person, and what they decide."""

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices
from app.api.keyed import attempted
from app.api.shapes.bodies import DecisionIn, checked
from app.api.shapes.sessions import ApprovalList, ApprovalOut
from app.api.wire import describing, params
from app.api.wire.answers import answer, as_json
from app.api.wire.routing import Keeps, Operation
from app.core.events import Choice
from app.runtime.sessions.approvals import Decided


class ApprovalRoutes:
    """The operations on approvals."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def list(self, request: Request) -> Response:
        """Return what waits to be decided, or everything that one session ever asked for."""
        approvals = self._services.approvals
        session_id = params.text_filter(request, "session")
        if session_id is not None:
            row = await self._services.sessions.row(TENANT, session_id)
            found, after = list(await approvals.of_session(row)), None
        else:
            found, after = await approvals.pending(
                TENANT, after=params.cursor(request, "session"), limit=params.limit(request)
            )
        return as_json({"data": [approval.as_json() for approval in found], "next": after})

    async def get(self, request: Request) -> Response:
        """Return an approval."""
        found = await self._services.approvals.get(TENANT, params.path_id(request, "approval"))
        return as_json(found.as_json())

    async def decide(self, request: Request) -> Response:
        """Take a decision."""
        approval_id = params.path_id(request, "approval")
        attempt, content = await attempted(request, self._services)
        body = checked(DecisionIn, content)
        decided = Decided(
            choice=Choice(body.decision),
            message=body.message,
            arguments=body.arguments,
            hash=body.hash,
        )
        return answer(await self._services.approvals.decide(TENANT, approval_id, decided, attempt))

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (
            Operation(
                method="GET",
                path="/v1/approvals",
                id="listApprovals",
                summary="List what waits for a person, newest session first",
                detail="With `session`: everything that session ever asked for, decided or not.",
                endpoint=self.list,
                tag="approvals",
                answers=ApprovalList,
                parameters=(describing.SESSION, describing.LIMIT, describing.AFTER),
                refuses=(404,),
            ),
            Operation(
                method="GET",
                path="/v1/approvals/{id}",
                id="getApproval",
                summary="Look at an approval",
                endpoint=self.get,
                tag="approvals",
                answers=ApprovalOut,
                parameters=(describing.APPROVAL_ID,),
                refuses=(404,),
            ),
            Operation(
                method="POST",
                path="/v1/approvals/{id}",
                id="decideApproval",
                summary="Approve or deny a call, for good",
                detail="Of several decisions one is taken, the others get 409. `arguments` changes "
                "those of an approved call: they are checked like the model's own. `hash` says "
                "which arguments were seen; when the approval is for others, 409.",
                endpoint=self.decide,
                tag="approvals",
                answers=ApprovalOut,
                body=DecisionIn,
                keeps=Keeps.ENDPOINT,
                parameters=(describing.APPROVAL_ID,),
                refuses=(404, 409),
            ),
        )
