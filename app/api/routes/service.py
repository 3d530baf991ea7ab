"""The service itself: models, health, readiness, metrics, the document and its page."""

from collections.abc import Callable
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import ApiServices
from app.api.health import Probes
from app.api.page import render
from app.api.shapes.service import Health, ModelList, Readiness
from app.api.wire.answers import JSON, as_json
from app.api.wire.routing import Document, Operation, PageResponse, TextResponse
from app.runtime.views import to_json


class ServiceRoutes:
    """The operations that concern no session."""

    def __init__(self, services: ApiServices, document: Callable[[], Document]) -> None:
        """Use these services; `document` gives the OpenAPI document, which is made when asked."""
        self._services = services
        self._document = document

    @cached_property
    def _probes(self) -> Probes:
        services = self._services
        return Probes(
            ready=services.ready,
            metrics=services.metrics,
            version=services.version,
            draining=services.draining,
        )

    @cached_property
    def _document_json(self) -> bytes:
        return to_json(self._document())

    @cached_property
    def _page(self) -> bytes:
        return render(self._document())

    async def models(self, _: Request) -> Response:
        """Return the models, the default first."""
        shown = [
            {
                "name": model.name,
                "default": index == 0,
                "context_window": model.context_window,
                "encoding": model.encoding,
                "prices": {
                    "input": model.price_input,
                    "cached": model.price_cached,
                    "output": model.price_output,
                },
            }
            for index, model in enumerate(self._services.models.names())
        ]
        return as_json({"data": shown, "next": None})

    async def health(self, _: Request) -> Response:
        """Say that the process is there."""
        return await self._probes.health()

    async def readiness(self, _: Request) -> Response:
        """Say whether requests can be served, and what is missing."""
        return await self._probes.readiness()

    async def metrics(self, _: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        return await self._probes.scraped()

    async def document(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return Response(self._document_json, 200, None, JSON)

    async def page(self, _: Request) -> Response:
        """Return the page that shows the document."""
        return Response(self._page, 200, {"content-type": "text/html; charset=utf-8"})

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._of_use(), *self._of_running())

    def _of_use(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/v1/models",
                id="listModels",
                summary="List the language models",
                endpoint=self.models,
                tag="models",
                answers=ModelList,
            ),
            Operation(
                method="GET",
                path="/healthz",
                id="getHealth",
                summary="Whether the process is there",
                endpoint=self.health,
                tag="service",
                answers=Health,
                open=True,
            ),
            Operation(
                method="GET",
                path="/readyz",
                id="getReadiness",
                summary="Whether requests can be served now",
                endpoint=self.readiness,
                tag="service",
                answers=Readiness,
                also={503: "Not now; what is missing is named"},
                open=True,
            ),
        )

    def _of_running(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/metrics",
                id="getMetrics",
                summary="Metrics in Prometheus' text format",
                endpoint=self.metrics,
                tag="service",
                kind=TextResponse,
                open=True,
            ),
            Operation(
                method="GET",
                path="/openapi.json",
                id="getDocument",
                summary="This document",
                endpoint=self.document,
                tag="service",
                open=True,
            ),
            Operation(
                method="GET",
                path="/docs",
                id="getDocs",
                summary="This document as a page",
                endpoint=self.page,
                tag="service",
                kind=PageResponse,
                open=True,
            ),
        )
