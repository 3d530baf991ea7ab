"""A fuzzer reads the document and asks for everything in it."""

import asyncio

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.app import create_app
from tests.api.conftest import create
from tests.fakes.api_world import World

pytestmark = pytest.mark.alone

WORLD = World()
APP = create_app(WORLD.services)
schema = schemathesis.openapi.from_asgi("/openapi.json", APP)


async def _finished_session() -> str:
    transport = httpx2.ASGITransport(app=APP)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api.test") as client:
        session_id = await create(client)
    await WORLD.finish(session_id)
    return session_id


SESSION_ID = asyncio.run(_finished_session())
SERVED = {"/v1/sessions/{id}", "/v1/sessions/{id}/events"}


@pytest.mark.req("API-12", "API-13")
@schema.parametrize()
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_fuzz(case: schemathesis.Case) -> None:  # type: ignore[type-arg]
    if case.operation.path in SERVED and len(str(case.path_parameters["id"])) % 2:
        case.path_parameters["id"] = SESSION_ID
    if case.operation.path == "/v1/tools/{name}/invoke":
        case.path_parameters["name"] = "calculate"
    case.call_and_validate(
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ]
    )
