"""`tools add`, `tools list`."""

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.fake_service import Answer, FakeService, problem

TOOL = {"name": "get_weather", "kind": "http", "description": "The weather."}
ADDED = {
    "tool": {**TOOL, "version": 1},
    "lint": {"score": 80, "warnings": [{"pointer": "/description", "message": "is short"}, "hm"]},
}


@pytest.mark.req("API-5")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tool.json", json.dumps(TOOL)),
        ("tool.json", json.dumps([TOOL])),
        ("tool.yaml", "name: get_weather\nkind: http\ndescription: The weather.\n"),
        ("tools.yml", "tools:\n- {name: get_weather, kind: http, description: The weather.}\n"),
    ],
)
async def test_a_file_is_registered(
    service: FakeService, surefoot: Surefoot, tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    service.answers["POST /v1/tools"] = [Answer(201, ADDED)]
    ran = await surefoot("tools", "add", str(tmp_path / name))
    assert service.of("POST", "/v1/tools")[0].body == TOOL
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "get_weather: added (version 1)",
        "  /description: is short",
        "  hm",
    ]


async def test_one_that_exists_needs_update(
    service: FakeService, surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answers["POST /v1/tools"] = [problem(409, "Exists"), problem(409, "Exists")]
    service.answers["PUT /v1/tools/get_weather"] = [Answer(200, {"tool": {"version": 2}})]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(TOOL)))
    ran = await surefoot("tools", "add", "-")
    assert (ran.code, "Use --update" in ran.err) == (2, True)
    assert service.of("PUT", "/v1/tools/get_weather") == []
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(TOOL)))
    ran = await surefoot("tools", "add", "-", "--update")
    assert (ran.code, ran.out) == (0, "get_weather: updated (version 2)\n")


async def test_one_that_fails_does_not_stop_the_rest(
    service: FakeService, surefoot: Surefoot, tmp_path: Path
) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "bad"}, TOOL]))
    service.answers["POST /v1/tools"] = [problem(422, "Invalid"), Answer(201, ADDED)]
    ran = await surefoot("tools", "add", str(file))
    assert ran.code == 2
    assert "bad: Invalid" in ran.err
    assert "get_weather: added" in ran.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "neither a tool nor a list"),
        ("just text", "neither a tool nor a list"),
        ("[1]", "neither a tool nor a list"),
        ("{kind: http}", "tool 1 has no name"),
        ("{", "not well-formed"),
        ("{name: x, since: 2025-01-31}", "in quotes"),
        ("{name: x, limit: .nan}", "JSON does not have"),
    ],
)
async def test_a_file_that_holds_no_tools_is_not_sent(
    service: FakeService, surefoot: Surefoot, tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "tools.yaml"
    file.write_text(content)
    ran = await surefoot("tools", "add", str(file))
    assert (ran.code, service.seen) == (2, [])
    assert words in ran.err


async def test_a_file_that_is_not_there(surefoot: Surefoot, tmp_path: Path) -> None:
    ran = await surefoot("tools", "add", str(tmp_path / "none.json"))
    assert (ran.code, "No such file" in ran.err) == (2, True)


async def test_the_list_shows_every_tool(service: FakeService, surefoot: Surefoot) -> None:
    tools = [{**TOOL, "version": 3, "effect": "read"}, {**TOOL, "name": "old", "enabled": False}]
    page = Answer(200, {"data": tools, "next": None})
    service.answers["GET /v1/tools"] = [page, page]
    ran = await surefoot("tools", "list")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines == [
        "name kind effect version description",
        "get_weather http read 3 The weather.",
        "old http (disabled) The weather.",
    ]
    ran = await surefoot("tools", "list", "--json")
    assert json.loads(ran.out) == tools
