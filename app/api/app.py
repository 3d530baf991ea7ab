"""Puts the HTTP API together."""

from starlette.types import ASGIApp

from app.api.deps import ApiServices
from app.api.edge import Edge
from app.api.keyed import keyed
from app.api.routes.approvals import ApprovalRoutes
from app.api.routes.explain import ExplainRoutes
from app.api.routes.schedules import ScheduleRoutes
from app.api.routes.service import ServiceRoutes
from app.api.routes.sessions import SessionRoutes
from app.api.routes.tools import ToolRoutes
from app.api.routes.trace import TraceRoutes
from app.api.routes.verbs import VerbRoutes
from app.api.routes.webhooks import WebhookRoutes
from app.api.wire.routing import Api, Document

Application = ASGIApp
"""What a server runs."""


def create_app(services: ApiServices) -> Application:
    """Return the ASGI application; it starts and stops nothing by itself."""
    return Edge(create_api(services, services.version), services)


def create_api(services: ApiServices, version: str) -> Api:
    """Return the routes with their document, without the edge around them."""

    def document() -> Document:
        return api.openapi()

    of_routes = (
        *SessionRoutes(services).operations(),
        *TraceRoutes(services).operations(),
        *VerbRoutes(services).operations(),
        *ApprovalRoutes(services).operations(),
        *ToolRoutes(services).operations(),
        *ScheduleRoutes(services).operations(),
        *WebhookRoutes(services).operations(),
        *ExplainRoutes(services).operations(),
        *ServiceRoutes(services, document).operations(),
    )
    api = Api([keyed(operation, services) for operation in of_routes], version)
    return api
