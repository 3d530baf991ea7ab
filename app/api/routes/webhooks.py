"""Webhooks: register, look at, change, remove, try out, and what became of their deliveries."""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices
from app.api.shapes.bodies import NothingIn, checked
from app.api.shapes.webhooks import (
    DeliveryList,
    DeliveryOut,
    TriedOut,
    WebhookIn,
    WebhookList,
    WebhookOut,
    WebhookSecretOut,
    delivery_json,
    webhook_json,
)
from app.api.wire import describing, params
from app.api.wire.answers import as_json
from app.api.wire.body import clean_text, read_object
from app.api.wire.routing import Keeps, Operation
from app.runtime.paging import cut
from app.runtime.side.webhook_records import DeliveryStatus
from app.runtime.side.webhooks import Webhooks

_PATH: Final = "/v1/webhooks/{id}"
_STATUSES: Final = frozenset(status.value for status in DeliveryStatus)
_OF_ONE: Final = (describing.WEBHOOK_ID,)


class WebhookRoutes:
    """The operations on webhooks."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    @property
    def _webhooks(self) -> Webhooks:
        return self._services.webhooks

    async def register(self, request: Request) -> Response:
        """Register an endpoint; its secret is in this answer only."""
        content = await read_object(request, self._services.body_limit)
        spec = checked(WebhookIn, content).spec()
        webhook, secret = await self._webhooks.register(TENANT, spec)
        return as_json(webhook_json(webhook, secret), HTTPStatus.CREATED)

    async def list(self, request: Request) -> Response:
        """Return a page of endpoints, newest first."""
        limit, after = params.limit(request), params.cursor(request, "webhook")
        found = await self._webhooks.store.page(TENANT, after, limit + 1)
        shown, following = cut(found, limit)
        return as_json({"data": [webhook_json(one) for one in shown], "next": following})

    async def get(self, request: Request) -> Response:
        """Return an endpoint."""
        found = await self._webhooks.get(TENANT, params.path_id(request, "webhook"))
        return as_json(webhook_json(found))

    async def change(self, request: Request) -> Response:
        """Replace what was said of an endpoint."""
        webhook_id = params.path_id(request, "webhook")
        spec = checked(WebhookIn, await read_object(request, self._services.body_limit)).spec()
        return as_json(webhook_json(await self._webhooks.change(TENANT, webhook_id, spec)))

    async def delete(self, request: Request) -> Response:
        """Remove an endpoint with its deliveries."""
        await self._webhooks.delete(TENANT, params.path_id(request, "webhook"))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def rotate(self, request: Request) -> Response:
        """Give an endpoint a new secret; it is in this answer only."""
        webhook_id = params.path_id(request, "webhook")
        await self._nothing(request)
        webhook, secret = await self._webhooks.rotate(TENANT, webhook_id)
        return as_json(webhook_json(webhook, secret))

    async def test(self, request: Request) -> Response:
        """Send a ping now; that the endpoint refuses it is an answer, not an error."""
        webhook_id = params.path_id(request, "webhook")
        await self._nothing(request)
        tried = await self._webhooks.test(TENANT, webhook_id)
        posted = tried.posted
        error = posted.error
        if error is None and not posted.ok:
            error = f"The endpoint answered with HTTP {posted.status}."
        shown = {
            "ok": posted.ok,
            "status": posted.status,
            "error": error,
            "duration_ms": round(tried.took_s * 1000, 3),
        }
        return as_json(shown)

    async def deliveries(self, request: Request) -> Response:
        """Return a page of an endpoint's deliveries, newest first."""
        limit, after = params.limit(request), params.cursor(request, "delivery")
        status = params.choice(request, "status", _STATUSES)
        found = await self._webhooks.deliveries(
            TENANT,
            params.path_id(request, "webhook"),
            status=None if status is None else DeliveryStatus(status),
            after=after,
            limit=limit + 1,
        )
        shown, following = cut(found, limit)
        return as_json({"data": [delivery_json(one) for one in shown], "next": following})

    async def redeliver(self, request: Request) -> Response:
        """Make a delivery due now."""
        webhook_id = params.path_id(request, "webhook")
        delivery_id = clean_text(str(request.path_params["delivery"])[:80])
        await self._nothing(request)
        found = await self._webhooks.redeliver(TENANT, webhook_id, delivery_id)
        return as_json(delivery_json(found), HTTPStatus.ACCEPTED)

    async def _nothing(self, request: Request) -> dict[str, object]:
        content = await read_object(request, self._services.body_limit, optional=True)
        checked(NothingIn, content)
        return content

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._on_all(), *self._on_one(), *self._secrets(), *self._on_deliveries())

    def _on_all(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/webhooks",
                id="registerWebhook",
                summary="Register an endpoint to tell of events",
                detail="The `secret` for verifying signatures is in this answer only.",
                endpoint=self.register,
                tag="webhooks",
                status=201,
                answers=WebhookSecretOut,
                body=WebhookIn,
                refuses=(409,),
            ),
            Operation(
                method="GET",
                path="/v1/webhooks",
                id="listWebhooks",
                summary="List endpoints, newest first",
                endpoint=self.list,
                tag="webhooks",
                answers=WebhookList,
                parameters=(describing.LIMIT, describing.AFTER),
            ),
        )

    def _on_one(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path=_PATH,
                id="getWebhook",
                summary="Look at an endpoint",
                endpoint=self.get,
                tag="webhooks",
                answers=WebhookOut,
                parameters=(describing.WEBHOOK_ID,),
                refuses=(404,),
            ),
            Operation(
                method="PUT",
                path=_PATH,
                id="changeWebhook",
                summary="Replace what was said of an endpoint",
                detail="What waits for it goes to the new address. Enabling sends what waits.",
                endpoint=self.change,
                tag="webhooks",
                answers=WebhookOut,
                body=WebhookIn,
                parameters=(describing.WEBHOOK_ID,),
                refuses=(404,),
            ),
            Operation(
                method="DELETE",
                path=_PATH,
                id="deleteWebhook",
                summary="Remove an endpoint with its deliveries",
                endpoint=self.delete,
                tag="webhooks",
                status=204,
                parameters=(describing.WEBHOOK_ID,),
                refuses=(404,),
            ),
        )

    def _secrets(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path=_PATH + "/rotate",
                id="rotateWebhookSecret",
                summary="Give an endpoint a new secret",
                detail="The old secret signs beside the new one for 24 hours.",
                endpoint=self.rotate,
                tag="webhooks",
                answers=WebhookSecretOut,
                body=NothingIn,
                optional_body=True,
                parameters=_OF_ONE,
                refuses=(404, 409),
            ),
            Operation(
                method="POST",
                path=_PATH + "/test",
                id="testWebhook",
                summary="Send a signed ping now",
                endpoint=self.test,
                keeps=Keeps.REPEATABLE,
                tag="webhooks",
                answers=TriedOut,
                body=NothingIn,
                optional_body=True,
                parameters=_OF_ONE,
                refuses=(404, 409),
            ),
        )

    def _on_deliveries(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path=_PATH + "/deliveries",
                id="listDeliveries",
                summary="List an endpoint's deliveries, newest first",
                detail="`dead`: the last attempt failed too. Kept for 30 days after they end.",
                endpoint=self.deliveries,
                tag="webhooks",
                answers=DeliveryList,
                parameters=(
                    describing.WEBHOOK_ID,
                    describing.LIMIT,
                    describing.AFTER,
                    describing.DELIVERY_STATUS,
                ),
                refuses=(404,),
            ),
            Operation(
                method="POST",
                path=_PATH + "/deliveries/{delivery}/redeliver",
                id="redeliver",
                summary="Send a delivery again",
                endpoint=self.redeliver,
                keeps=Keeps.REPEATABLE,
                tag="webhooks",
                status=202,
                answers=DeliveryOut,
                body=NothingIn,
                optional_body=True,
                parameters=(
                    describing.WEBHOOK_ID,
                    describing.DELIVERY_ID,
                ),
                refuses=(404, 409),
            ),
        )
