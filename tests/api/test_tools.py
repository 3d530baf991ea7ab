"""Tools over HTTP."""

import httpx2
import pytest

from app.core.faults import Fault, FaultKind
from tests.fakes.api_world import World

TOOL = {
    "name": "get_weather",
    "kind": "http",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {}}, "required": ["city"]},
}


@pytest.mark.req("API-5")
async def test_the_life_of_a_tool(client: httpx2.AsyncClient) -> None:
    made = await client.post("/v1/tools", json=TOOL)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/tools/get_weather")
    assert made.json()["lint"] == {"score": 90, "warnings": ["/description: too short"]}
    session = await client.post("/v1/sessions", json={"task": "a", "tools": ["get_weather"]})
    assert session.json()["tools"] == ["get_weather"]
    taken = await client.post("/v1/tools", json=TOOL)
    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/tool-exists")
    changed = await client.put("/v1/tools/get_weather", json={**TOOL, "enabled": False})
    assert changed.json()["tool"]["version"] == 2
    off = await client.post("/v1/sessions", json={"task": "a", "tools": ["get_weather"]})
    assert off.status_code == 422
    assert (await client.get("/v1/tools/get_weather")).json()["enabled"] is False
    assert (await client.delete("/v1/tools/get_weather")).status_code == 204
    for answer in (
        await client.get("/v1/tools/get_weather"),
        await client.delete("/v1/tools/get_weather"),
        await client.put("/v1/tools/get_weather", json=TOOL),
        await client.post("/v1/tools/get_weather/invoke", json={}),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/tool-not-found")


@pytest.mark.req("API-5")
async def test_list_with_built_ins(client: httpx2.AsyncClient) -> None:
    for name in ("b", "a", "d"):
        await client.post("/v1/tools", json={**TOOL, "name": name})
    first = (await client.get("/v1/tools", params={"limit": 2})).json()
    assert [tool["name"] for tool in first["data"]] == ["a", "b"]
    rest = (await client.get("/v1/tools", params={"after": first["next"]})).json()
    assert [tool["name"] for tool in rest["data"]] == ["calculate", "d"]
    assert rest["next"] is None


@pytest.mark.req("API-5")
async def test_built_ins_stay(client: httpx2.AsyncClient) -> None:
    named = {**TOOL, "name": "calculate"}
    assert (await client.post("/v1/tools", json=named)).json()["type"] == "/problems/tool-exists"
    for answer in (
        await client.put("/v1/tools/calculate", json=named),
        await client.delete("/v1/tools/calculate"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/tool-built-in")


async def test_a_tool_of_the_client_cannot_be_tried_out_here(
    client: httpx2.AsyncClient, world: World
) -> None:
    await client.post("/v1/tools", json={**TOOL, "kind": "client"})
    answer = await client.post("/v1/tools/get_weather/invoke", json={"arguments": {"city": "a"}})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/tool-of-client")
    assert world.tool_port.requests == []


@pytest.mark.req("API-5")
async def test_dry_run(client: httpx2.AsyncClient, world: World) -> None:
    await client.post("/v1/tools", json=TOOL)
    path = "/v1/tools/get_weather/invoke"
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    answer = await client.post(
        path, json={"arguments": {"city": "Oslo"}}, headers={"traceparent": trace}
    )
    assert answer.status_code == 200
    shown = answer.json()
    assert shown.pop("duration_ms") >= 0
    assert shown == {"outcome": "ok", "output": {"echo": {"city": "Oslo"}}}
    [request] = world.tool_port.requests
    assert request.key.startswith("invoke:inv_")
    assert (request.timeout_s, request.traceparent) == (15.0, trace)
    wrong = (await client.post(path, json={"arguments": {}})).json()
    assert (wrong["outcome"], wrong["error"]["kind"]) == ("error", "invalid_args")
    assert len(world.tool_port.requests) == 1


@pytest.mark.req("API-5", "TOOL-10")
@pytest.mark.parametrize(
    ("kind", "sent", "outcome"),
    [
        (FaultKind.NOT_FOUND, True, "error"),
        (FaultKind.TIMEOUT, True, "unknown"),
        (FaultKind.UNAVAILABLE, False, "error"),
        (FaultKind.UNKNOWN_OUTCOME, True, "unknown"),
    ],
)
async def test_dry_run_that_fails(
    client: httpx2.AsyncClient, world: World, kind: FaultKind, *, sent: bool, outcome: str
) -> None:
    await client.post("/v1/tools", json=TOOL)
    world.tool_port.fails = Fault.of(kind, "no", sent=sent)
    answer = await client.post("/v1/tools/get_weather/invoke", json={"arguments": {"city": "Oslo"}})
    assert answer.status_code == 200
    assert answer.json()["outcome"] == outcome
    assert answer.json()["error"]["kind"] == kind


@pytest.mark.req("API-12")
async def test_bad_registrations(client: httpx2.AsyncClient) -> None:
    for body, pointer in (({}, "/name"), ({"name": "t", "parameters": 1}, "/parameters")):
        answer = await client.post("/v1/tools", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
    unknown = await client.post("/v1/tools/calculate/invoke", json={"args": {}})
    assert unknown.json()["errors"][0]["pointer"] == "/args"


async def test_models(client: httpx2.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()
    assert [(m["name"], m["default"]) for m in models["data"]] == [("demo", True), ("paid", False)]
    assert models["data"][1]["prices"] == {"input": 1.0, "cached": None, "output": 2.0}
