"""Keys, health, readiness, metrics, the access log, the document and its page."""

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest
from jsonschema import Draft202012Validator
from typing_extensions import override

from app.api import export
from app.api.deps import Auth
from app.api.wire.problems import TITLES
from tests.api.conftest import create, in_process
from tests.fakes.api_world import World

ROOT = Path(__file__).parents[2]


@pytest.mark.req("SAFE-4")
@pytest.mark.case("C165")
async def test_keys() -> None:
    world = World(auth=Auth(required=True, admin_key="s3cret"))
    async with world.running(), in_process(world) as client:
        for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"):
            assert (await client.get(path)).status_code == 200, path
        stream = "/v1/sessions/ses_00000000000000000000000000/stream"
        for key in (None, "", "s3cret", "Bearer", "Bearer s3cre", "Bearer s3cretx", "Basic s3cret"):
            headers = {} if key is None else {"Authorization": key}
            for path in ("/v1/sessions", stream, "/v1/nothing", stream + "?key=s3cret"):
                answer = await client.get(path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert answer.json()["type"] == "/problems/unauthorized"
        for key in ("Bearer s3cret", "bearer  s3cret"):
            answer = await client.get("/v1/sessions", headers={"Authorization": key})
            assert answer.status_code == 200
    assert "s3cret" not in json.dumps(world.observer.lines)


@pytest.mark.req("SAFE-4")
async def test_no_key_lets_nobody_in() -> None:
    world = World(auth=Auth(required=True, admin_key=None))
    async with in_process(world) as client:
        for key in ("Bearer ", "Bearer None", ""):
            answer = await client.get("/v1/models", headers={"Authorization": key})
            assert answer.status_code == 401


@pytest.mark.req("OPS-5")
async def test_health_and_readiness(client: httpx2.AsyncClient, world: World) -> None:
    assert (await client.get("/healthz")).json()["status"] == "ok"
    assert (await client.get("/readyz")).status_code == 200
    world.readiness = {"ready": False, "migrations": "running"}
    waiting = await client.get("/readyz")
    assert (waiting.status_code, waiting.json()["migrations"]) == (503, "running")
    world.readiness = {"ready": True}
    world.draining.set()
    assert (await client.get("/readyz")).status_code == 503
    metrics = await client.get("/metrics")
    assert metrics.text == "surefoot_up 1\n"
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_access_log(client: httpx2.AsyncClient, world: World) -> None:
    await client.get("/v1/models", params={"token": "hidden"})
    await client.get("/healthz")
    [(name, fields)] = world.observer.lines
    assert name == "http.request"
    assert (fields["method"], fields["path"], fields["status"]) == ("GET", "/v1/models", 200)
    assert "hidden" not in str(fields)


@pytest.mark.req("API-13")
def test_the_document_is_committed() -> None:
    assert export.main(["--check", str(ROOT / "openapi" / "openapi.json")]) == 0


@pytest.mark.req("API-13")
def test_the_check_sees_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "docs" / "openapi.json"
    assert export.main(["--check", str(path)]) == 1
    assert export.main([str(path)]) == 0
    assert export.main(["--check", str(path)]) == 0
    path.write_text(path.read_text().replace("createSession", "makeSession"))
    assert export.main(["--check", str(path)]) == 1
    assert "createSession" in capsys.readouterr().err


@pytest.mark.req("API-13")
async def test_every_operation_is_described(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    known = set(document["components"]["schemas"])
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert used <= known
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["operationId"], path
            assert operation["summary"], path
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            answers = operation["responses"]
            assert "500" in answers
            for status, answer in answers.items():
                kinds = set(answer.get("content", {}))
                if int(status) >= 400 and path != "/readyz":
                    assert kinds == {"application/problem+json"}, (method, path, status)


@pytest.mark.req("API-13")
async def test_answers_are_as_described(client: httpx2.AsyncClient, world: World) -> None:
    schemas = (await client.get("/openapi.json")).json()["components"]

    def check(name: str, value: object) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": schemas}
        Draft202012Validator(schema).validate(value)

    session_id = await create(client)
    check("SessionOut", (await client.get(f"/v1/sessions/{session_id}")).json())
    await world.work(session_id)
    await world.finish(session_id)
    check("SessionOut", (await client.get(f"/v1/sessions/{session_id}")).json())
    check("SessionList", (await client.get("/v1/sessions")).json())
    check("EventList", (await client.get(f"/v1/sessions/{session_id}/events")).json())
    told = await client.post(f"/v1/sessions/{session_id}/messages", json={"text": "x"})
    check("ReceiptOut", told.json())
    check("Problem", (await client.get("/v1/nothing")).json())
    check("Problem", (await client.post("/v1/sessions", json={})).json())
    check("ToolSaved", (await client.post("/v1/tools", json={"name": "t"})).json())
    check("ToolList", (await client.get("/v1/tools")).json())
    check("ModelList", (await client.get("/v1/models")).json())
    check("InvokedOut", (await client.post("/v1/tools/t/invoke", json={})).json())
    check("Health", (await client.get("/healthz")).json())


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loads = {"script", "link", "img", "iframe"}
        self.outside += [str(v) for k, v in attrs if k in {"src", "href"} and "//" in str(v)]
        self.outside += [tag] if tag in loads else []


@pytest.mark.req("API-13")
async def test_the_page_needs_no_network(client: httpx2.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = _Links()
    links.feed(page.text)
    assert links.outside == []
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        assert f"<code>{path}</code>" in page.text
        for operation in methods.values():
            assert f"id='{operation['operationId']}'" in page.text


@pytest.mark.req("API-12")
def test_every_problem_is_explained() -> None:
    page = (ROOT / "docs" / "problems.md").read_text()
    explained = set(re.findall(r"^\| `/problems/([a-z-]+)`", page, re.MULTILINE))
    assert explained == set(TITLES)


@pytest.mark.req("API-12")
def test_every_refusal_has_a_title() -> None:
    """Looks for the second argument of each Conflict and HttpProblem in the code."""
    used = set()
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = {"Conflict": 1, "HttpProblem": 1, "_unavailable": 0}.get(node.func.id)
            if place is not None and len(node.args) > place:
                slug = node.args[place]
                used |= {slug.value} if isinstance(slug, ast.Constant) else set()
            if node.func.id == "NotFound" and isinstance(node.args[0], ast.Constant):
                used.add(f"{node.args[0].value!s}-not-found")
    assert len(used) > 15
    assert used <= set(TITLES)
