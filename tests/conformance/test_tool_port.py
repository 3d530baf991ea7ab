"""The port that carries tools out, on the fake and on a tool's real server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import StatusReply, ToolPort
from app.tools.definition import parse
from tests.fakes.toolport import FakeTools
from tests.tools.support import answering, call, json_answer, raw, serving, tools_for

NAMES = ("good", "bad", "done", "undone", "unclear", "away")
_ANSWERS = {
    "good": json_answer('{"n":1}'),
    "bad": raw(404),
    "done": json_answer('{"n":1}'),
    "undone": raw(404),
    "unclear": raw(202),
    "away": raw(503),
}


@dataclass(frozen=True, slots=True)
class Ported:
    """A port and the tools that it can carry out."""

    port: ToolPort
    specs: dict[str, ToolSpec]


def _spec(name: str, root: str) -> ToolSpec:
    body: dict[str, Json] = {
        "name": name,
        "kind": "http",
        "description": "Probe a server, for tests. Returns what it says.",
        "http": {"method": "GET", "url": f"{root}/{name}"},
        "status_check": {"url": f"{root}/{name}?key={{idempotency_key}}"},
    }
    return parse(body).spec


@pytest_asyncio.fixture(params=["fake", "http"])
async def ported(request: pytest.FixtureRequest) -> AsyncIterator[Ported]:
    if request.param == "fake":
        not_found = Fault.of(FaultKind.NOT_FOUND, "nothing there")
        away = Fault.of(FaultKind.UNAVAILABLE, "away")
        port = FakeTools(
            {"good": lambda _: {"n": 1}, "bad": not_found},
            statuses={
                "done": StatusReply(happened=True, output={"n": 1}),
                "undone": StatusReply(happened=False),
                "away": away,
            },
        )
        yield Ported(port, {name: _spec(name, "http://tools.test") for name in NAMES})
        return
    async with AsyncExitStack() as opened:
        tools = await opened.enter_async_context(tools_for())
        specs = {}
        for name in NAMES:
            server = await opened.enter_async_context(serving(answering(_ANSWERS[name])))
            specs[name] = _spec(name, server.url)
        yield Ported(tools, specs)


async def test_a_call_gives_its_output_or_a_fault(ported: Ported) -> None:
    reply = await ported.port.run(call(ported.specs["good"]))
    assert reply.output == {"n": 1}
    with pytest.raises(ToolFailure) as raised:
        await ported.port.run(call(ported.specs["bad"]))
    assert raised.value.fault.kind is FaultKind.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "happened", "output"),
    [("done", True, {"n": 1}), ("undone", False, None), ("unclear", None, None)],
)
async def test_a_check_says_what_became_of_a_call(
    ported: Ported,
    name: str,
    happened: bool | None,  # noqa: FBT001
    output: Json,
) -> None:
    status = await ported.port.check(call(ported.specs[name]))
    assert (status.happened, status.output) == (happened, output)


async def test_a_check_that_gets_no_answer_fails(ported: Ported) -> None:
    with pytest.raises(ToolFailure) as raised:
        await ported.port.check(call(ported.specs["away"]))
    assert raised.value.fault.kind is FaultKind.UNAVAILABLE
