"""Whatever comes in: a problem or a harmless success, never 500, and the service goes on."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from app.runtime.errors import KeyMissing
from tests.api.conftest import create, in_process
from tests.fakes.api_ports import PlainKeyring
from tests.fakes.api_world import World

JSON = {"content-type": "application/json"}
URL = "/v1/sessions"


@pytest.fixture(autouse=True)
async def _still_serving(client: httpx2.AsyncClient, world: World) -> AsyncIterator[None]:
    """After each test the service works, and nothing was an internal error."""
    yield
    assert (await client.get("/healthz")).status_code == 200
    assert [fields for name, fields in world.observer.lines if name == "http.failed"] == []
    await create(client)


async def _post(
    client: httpx2.AsyncClient, content: bytes | str, url: str = URL
) -> httpx2.Response:
    return await client.post(url, content=content, headers=JSON)


@pytest.mark.req("API-12")
@pytest.mark.case("C175", "C120")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nope",
        b'{"task": "a",}',
        b'{"task": NaN}',
        b'{"task": "a", "limits": {"max_cost": Infinity}}',
        b'{"task": "a", "x\\u0000": -Infinity}',
        b'{"task": "a", "limits": {"max_cost": 1e400}}',
        b'{"task": "\\u0000", "limits": {"max_cost": 1e400}}',
        b'{"task": "\xff"}',
        b'{"task": "\xff\\u0000"}',
        b'{"task": "a\x00b"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"task": "\\u0000", "a":' + b"[" * 100_000,
        b'{"output_schema": ' + b"[" * 101 + b"]" * 101 + b"}",
        b'{"n": ' + b"9" * 5000 + b"}",
        "{'task': 'a'}".encode("utf-16"),
    ],
)
async def test_what_is_not_json(client: httpx2.AsyncClient, content: bytes) -> None:
    answer = await _post(client, content)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "/problems/not-json"
    assert problem["instance"] == URL
    assert "set_int_max_str_digits" not in problem["detail"]


@pytest.mark.req("API-12")
@pytest.mark.parametrize("content", [b"null", b"[]", b'"task"', b"1", b"true"])
async def test_what_is_no_object(client: httpx2.AsyncClient, content: bytes) -> None:
    answer = await _post(client, content)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/invalid-request")


LIMITS_AT_FAULT: dict[str, list[object]] = {
    "max_steps": [0, 101, -1, 1.5, "12", True, None, 10**30],
    "token_budget": [0, 10_000_001],
    "max_cost": [-0.01, "1", True],
    "max_consecutive_errors": [0, 101],
    "loop_window": [0, 1, 101],
    "loop_threshold": [0, 1, 101],
    "max_repeat": [0, 101],
    "total_timeout_s": [0, -1, 1e300, "90"],
    "tool_timeout_s": [0, -0.5, None],
    "max_tool_calls_per_step": [0, 101],
}


@pytest.mark.req("API-12", "LOOP-3")
@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, values in LIMITS_AT_FAULT.items() for v in values]
)
async def test_limits_out_of_range(client: httpx2.AsyncClient, name: str, value: object) -> None:
    content = json.dumps({"task": "a", "limits": {name: value}})
    answer = await _post(client, content)
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json()["errors"]] == [f"/limits/{name}"]


@pytest.mark.req("LOOP-3", "LOOP-4", "LOOP-7", "LOOP-9")
async def test_limits_in_range(client: httpx2.AsyncClient) -> None:
    limits = {
        "max_steps": 100,
        "token_budget": 10_000_000,
        "max_cost": None,
        "max_consecutive_errors": 1,
        "loop_window": 8,
        "loop_threshold": 2,
        "max_repeat": 1.0,
        "total_timeout_s": 0.5,
        "tool_timeout_s": 3,
        "max_tool_calls_per_step": 1,
    }
    answer = await client.post(URL, json={"task": "a", "limits": limits})
    assert answer.status_code == 201
    assert answer.json()["limits"] == limits


@pytest.mark.req("API-12")
@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/task"]),
        ({"task": ""}, ["/task"]),
        ({"task": " \n"}, ["/task"]),
        ({"task": 1}, ["/task"]),
        ({"task": None}, ["/task"]),
        ({"task": "a", "colour": "red"}, ["/colour"]),
        ({"task": "a", "a/b~c": 1}, ["/a~1b~0c"]),
        ({"task": "a", "limits": {"steps": 1}}, ["/limits/steps"]),
        ({"task": "a", "limits": []}, ["/limits"]),
        ({"task": "a", "agent": 1}, ["/agent"]),
        ({"task": "a", "agent": {"version": 1}}, ["/agent", "/agent/name"]),
        ({"task": "a", "tools": "calculate"}, ["/tools"]),
        ({"task": "a", "tools": ["calculate", 2]}, ["/tools/1"]),
        ({"task": "a", "tools": ["calculate", "unknown"]}, ["/tools/1"]),
        ({"task": "a", "model": "unknown"}, ["/model"]),
        ({"task": "a", "limits": {"max_cost": 1}}, ["/limits/max_cost"]),
        ({"task": "a", "metadata": {"a": 1}}, ["/metadata/a"]),
        ({"task": "a", "metadata": {str(n): "" for n in range(65)}}, ["/metadata"]),
        ({"task": "a", "mode": "fast"}, ["/mode"]),
        ({"task": 1, "x": 2}, ["/task", "/x"]),
    ],
)
async def test_the_field_at_fault_is_named(
    client: httpx2.AsyncClient, body: dict[str, object], pointers: list[str]
) -> None:
    answer = await client.post(URL, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "/problems/invalid-request")
    assert [error["pointer"] for error in problem["errors"]] == pointers
    assert all(error["message"] for error in problem["errors"])


@pytest.mark.req("API-12")
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"agent": "other"}, "/agent"),
        ({"agent": {"name": "default", "version": 2}}, "/agent"),
        ({"output_schema": {}}, "/output_schema"),
        ({"mode": "plan_execute"}, "/mode"),
    ],
)
async def test_not_built_yet(
    client: httpx2.AsyncClient, body: dict[str, object], pointer: str
) -> None:
    answer = await client.post(URL, json={"task": "a", **body})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "/problems/not-supported-yet")
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.req("API-7")
@pytest.mark.parametrize("when_busy", ["enqueue", "interrupt", "steer"])
async def test_the_receipt_says_what_becomes_of_a_message(
    client: httpx2.AsyncClient, when_busy: str
) -> None:
    session_id = await create(client)
    body = {"text": "a", "when_busy": when_busy}
    answer = await client.post(f"{URL}/{session_id}/messages", json=body)
    receipts = {"enqueue": "enqueued", "interrupt": "interrupted", "steer": "steered"}
    assert (answer.status_code, answer.json()["receipt"]) == (202, receipts[when_busy])


async def test_defaults_can_be_said(client: httpx2.AsyncClient) -> None:
    body: dict[str, object] = {
        "task": "a",
        "agent": {"name": "default", "version": 1},
        "mode": "react",
        "output_schema": None,
        "on_disconnect": "continue",
        "tools": [],
        "model": None,
        "limits": None,
        "metadata": None,
    }
    answer = await client.post(URL, json=body)
    assert answer.status_code == 201
    assert answer.json()["tools"] == []


@pytest.mark.case("C116", "C118")
async def test_text_is_made_clean(client: httpx2.AsyncClient, world: World) -> None:
    content = (
        rb'{"task": "a\u0000b \ud83c x \udf78 \uD83C\uDF89 \ud83c\udf89",'
        rb' "metadata": {"k\u0000": "\udfff"}}'
    )
    answer = await _post(client, content)
    assert answer.status_code == 201
    assert answer.json()["metadata"] == {"k\ufffd": "\ufffd"}
    events = (await client.get(f"{URL}/{answer.json()['id']}/events")).json()
    assert events["data"][1]["data"]["text"] == "a\ufffdb \ufffd x \ufffd \U0001f389 \U0001f389"
    assert len(world.states) == 1


async def test_duplicate_keys_and_long_integers(client: httpx2.AsyncClient) -> None:
    twice = await _post(client, b'{"task": "first", "task": "second"}')
    assert twice.status_code == 201
    session_id = twice.json()["id"]
    long = b'{"call_id": "c", "outcome": "happened", "output": {"a": [1, 18446744073709551616]}}'
    answer = await _post(client, long, f"{URL}/{session_id}/verifications")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/output/a/1"


@pytest.mark.case("C175")
async def test_a_body_that_is_too_large(client: httpx2.AsyncClient) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 100_000

    declared = await _post(client, b'{"task": "' + b"a" * 10_000_000 + b'"}')
    undeclared = await client.post(URL, content=trickle(), headers=JSON)
    for answer in (declared, undeclared):
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/body-too-large")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON;charset=UTF-8", 201),
        ("application/vnd.api+json", 201),
        ("application/json; charset=latin-1", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
        (";;;", 415),
    ],
)
async def test_content_types(client: httpx2.AsyncClient, kind: str, status: int) -> None:
    answer = await client.post(URL, content=b'{"task": "a"}', headers={"content-type": kind})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "name",
    [
        "unknown",
        "ses_00000000000000000000000000",
        "ses_%00",
        "%00",
        "ses_%ff",
        "%F0%9F%8E%89",
        "ses_" + "a" * 3000,
        "..",
        "ses_a'--",
        "ses_%0d%0aX: 1",
        "%ed%a0%80",
    ],
)
async def test_ids_that_are_nobodys(client: httpx2.AsyncClient, name: str) -> None:
    for method, path in [
        ("GET", f"{URL}/{name}"),
        ("GET", f"{URL}/{name}/events"),
        ("GET", f"{URL}/{name}/stream"),
        ("POST", f"{URL}/{name}/cancel"),
        ("POST", f"{URL}/{name}/close"),
        ("POST", f"{URL}/{name}/resume"),
    ]:
        answer = await client.request(method, path)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=",
        "limit=-1",
        "limit=1e2",
        "limit=" + "9" * 5000,
        "after=%00",
        "after=x",
        "after=",
        "status=sleeping",
        "status=%00",
    ],
)
async def test_bad_parameters_of_a_list(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"{URL}?{query}")
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-parameter")
    assert answer.json()["errors"][0]["pointer"] == "/query/" + query.partition("=")[0]


@pytest.mark.parametrize("query", ["agent=%00", "tool=%ff", "agent=", "tool=" + "x" * 9000])
async def test_harmless_filters(client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"{URL}?{query}")
    assert (answer.status_code, answer.json()["data"]) == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/sessions", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/sessions", "GET, HEAD, POST"),
        ("HEAD", "/v1/sessions/ses_00000000000000000000000000/stream", "GET"),
        ("BREW", "/v1/tools/x", "DELETE, GET, HEAD, PUT"),
        ("GET", "/v1/tools/x/invoke", "POST"),
    ],
)
async def test_methods(client: httpx2.AsyncClient, method: str, path: str, allow: str) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/sessions/", "/v1/agents", "/v1/stats", "//v1/sessions", "/v1/%00"]
)
async def test_unknown_routes(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/no-such-route")


@pytest.mark.parametrize(
    "headers",
    [
        {"Prefer": "wait=abc"},
        {"Prefer": "wait=-1"},
        {"Prefer": ",,;="},
        {"Accept": "*/*;q=x"},
        {"Accept": "text/event-stream;q=0.1, application/json"},
        {"traceparent": "00-zz"},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
        {"Expect": "something"},
        {"X-" + "A" * 200: "b" * 5000},
    ],
)
async def test_odd_headers(client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answer = await client.post(URL, json={"task": "a"}, headers=headers)
    assert answer.status_code == 201


@pytest.mark.req("API-12")
async def test_an_error_shows_nothing_of_its_inside(world: World) -> None:
    world.store.rows = None  # type: ignore[assignment]
    async with in_process(world) as client:
        answer = await client.get(f"{URL}/ses_00000000000000000000000000")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal-error"
    assert "NoneType" not in answer.text
    [fields] = [fields for name, fields in world.observer.lines if name == "http.failed"]
    assert fields["error"] == "AttributeError"
    world.store.rows = {}
    world.observer.lines.clear()


@pytest.mark.req("API-12")
async def test_a_database_that_is_away(client: httpx2.AsyncClient, world: World) -> None:
    world.store.down = True
    for answer in (
        await client.post(URL, json={"task": "a"}),
        await client.get(URL),
        await client.get("/v1/tools"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
        assert answer.headers["retry-after"] == "1"
    world.store.down = False


@pytest.mark.req("API-12", "STATE-5")
async def test_a_session_sealed_with_a_key_that_is_not_here(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a replica that lags behind in a rotation of keys."""
    session_id = (await client.post(URL, json={"task": "a"})).json()["id"]

    def unwrap(_ring: object, _session_id: str, _key: object) -> None:
        raise KeyMissing("The encryption key 'k2' is not configured.")

    monkeypatch.setattr(PlainKeyring, "unwrap", unwrap)
    for path in (f"{URL}/{session_id}", f"{URL}/{session_id}/events"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/key-missing")
        assert "'k2'" in answer.json()["detail"]
