"""The port: every defect inside becomes a typed failure; results are bounded."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from app.core.canonical import Json, as_text
from app.core.faults import FaultKind
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import ArgumentReader, ToolPort, ToolReply
from app.tools.builtin import CALCULATE, Builtins
from app.tools.egress import EgressGuard
from app.tools.http import HttpTools
from app.tools.present import MOST_KEPT, present
from app.tools.runner import Tools
from app.tools.validation import Arguments
from tests.fakes.toolport import FakeArguments, FakeTools
from tests.tools.support import FixedClock, call, fault


class Broken(Builtins):
    """A built-in tool with a defect."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(FixedClock())
        self.error = error

    def run(self, name: str, arguments: Mapping[str, Json]) -> Json:  # type: ignore[explicit-override]
        del name, arguments
        raise self.error


def tools_with(builtins: Builtins) -> Tools:
    http = HttpTools(guard=EgressGuard(), secrets={}, clock=FixedClock(), version="1")
    return Tools(http=http, builtins=builtins)


def test_fakes_and_adapters_fit_the_ports() -> None:
    ports: list[ToolPort] = [FakeTools(), tools_with(Builtins(FixedClock()))]
    readers: list[ArgumentReader] = [FakeArguments(), Arguments()]
    assert len(ports) == len(readers)


@pytest.mark.req("TOOL-8", "TOOL-9")
@pytest.mark.case("C053", "C088")
@pytest.mark.parametrize(
    ("error", "name"),
    [
        (RuntimeError(), "RuntimeError"),
        (ValueError("password=hunter2"), "ValueError"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
async def test_a_defect_is_named_by_type_and_nothing_else(error: BaseException, name: str) -> None:
    found = await fault(tools_with(Broken(error)), CALCULATE)
    assert found.kind is FaultKind.INTERNAL
    assert found.message == f"calculate failed inside ({name})."


@pytest.mark.case("C088")
async def test_one_that_cancels_itself_does_not_take_its_siblings_down() -> None:
    broken = tools_with(Broken(asyncio.CancelledError()))
    good = tools_with(Builtins(FixedClock()))

    async def failing() -> FaultKind:
        return (await fault(broken, CALCULATE)).kind

    async with asyncio.TaskGroup() as group:
        first = group.create_task(failing())
        second = group.create_task(good.run(call(CALCULATE, expression="1+1")))
    assert first.result() is FaultKind.INTERNAL
    assert second.result().output == {"result": 2}


def test_short_results_are_left_alone() -> None:
    assert present({"a": 1}, 2000) == ToolReply({"a": 1}, None)
    assert present("x" * 2000, 2000) == ToolReply("x" * 2000, None)
    assert present(None, 1).content == "n… [truncated: 1 of 4 characters shown]"


@pytest.mark.req("TOOL-12")
def test_a_long_result_says_how_much_there_was() -> None:
    reply = present({"rows": ["y" * 100] * 100}, 50)
    assert reply.output == {"rows": ["y" * 100] * 100}
    assert reply.content is not None
    assert reply.content.startswith('{"rows":["yyy')
    assert reply.content.endswith("… [truncated: 50 of 10,310 characters shown]")


@pytest.mark.req("TOOL-12")
@pytest.mark.case("C097")
@pytest.mark.parametrize(
    "value", ["a" * 70_000, "界" * 40_000, '"\\' * 30_000, ["é" * 99] * 700, "\x01" * 20_000]
)
def test_what_the_journal_keeps_is_bounded(value: Json) -> None:
    reply = present(value, 2000)
    assert isinstance(reply.output, str)
    assert len(json.dumps(reply.output, ensure_ascii=False).encode()) <= MOST_KEPT
    assert f"of {len(as_text(value)):,} characters kept]" in reply.output


async def test_the_fake_answers_in_turn_and_counts() -> None:
    tools = FakeTools({"calculate": [lambda _: 1, ToolReply(2, "two")]})
    assert [(await tools.run(call(CALCULATE))).output for _ in range(3)] == [1, 2, 2]
    assert tools.count("calculate") == 3
    assert tools.keys("calculate") == {"ses_1:t1_c1_0"}
    with pytest.raises(ToolFailure, match="not scripted"):
        await FakeTools().run(call(CALCULATE))


@pytest.mark.parametrize("reader", [FakeArguments(), Arguments()])
async def test_readers_agree_on_the_simple_cases(reader: ArgumentReader) -> None:
    good = await reader.read(CALCULATE, '{"expression":"1"}')
    assert (good.arguments, good.fault, good.replay) == ({"expression": "1"}, None, None)
    for raw, kind, replay in (
        ("{}", FaultKind.INVALID_ARGS, None),
        ("", FaultKind.INVALID_ARGS, "{}"),
        ("[1]", FaultKind.INVALID_ARGS, "{}"),
        ('{"a', FaultKind.UNREADABLE_CALL, "{}"),
    ):
        bad = await reader.read(CALCULATE, raw)
        assert bad.fault is not None
        assert (bad.arguments, bad.fault.kind, bad.replay or "{}") == (None, kind, replay or "{}")
