"""The built-in tools through the port, and what the model is told of them."""

import re

import pytest

from app.core.faults import FaultKind
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.errors import ToolFailure
from app.tools.builtin import BUILTINS, CALCULATE, NOW, Builtins
from app.tools.moment import ZoneError, moment
from app.tools.schema import prepare
from app.tools.validation import Arguments
from tests.tools.support import NOW_US, FixedClock, fault, run, tools_for


@pytest.mark.req("TOOL-15", "TOOL-1")
async def test_calculate_runs_through_the_port() -> None:
    async with tools_for() as tools:
        reply = await run(tools, CALCULATE, expression="299 * 0.8 - 50")
    assert reply.output == {"result": 189.2}
    assert reply.content is None


@pytest.mark.req("TOOL-8", "TOOL-9")
async def test_a_bad_expression_is_the_models_to_mend() -> None:
    async with tools_for() as tools:
        found = await fault(tools, CALCULATE, expression="1 / 0")
    assert found.kind is FaultKind.INVALID_ARGS
    assert "Position 3: division by zero" in found.message
    assert not found.sent


@pytest.mark.parametrize(
    ("zone", "shown", "weekday"),
    [
        (None, "2023-11-14T22:13:20+00:00", "Tuesday"),
        ("UTC", "2023-11-14T22:13:20+00:00", "Tuesday"),
        ("Asia/Shanghai", "2023-11-15T06:13:20+08:00", "Wednesday"),
        ("UTC+05:30", "2023-11-15T03:43:20+05:30", "Wednesday"),
        ("-3", "2023-11-14T19:13:20-03:00", "Tuesday"),
    ],
)
async def test_now_tells_the_clock_in_a_zone(zone: str | None, shown: str, weekday: str) -> None:
    async with tools_for() as tools:
        reply = await run(tools, NOW, timezone=zone)
    assert reply.output == {"now": shown, "timezone": zone or "UTC", "weekday": weekday}


@pytest.mark.parametrize("zone", ["Asia/Shangai", "../../etc/passwd", "+99:00", "\0", "x" * 90])
def test_an_unknown_zone_says_what_is_expected(zone: str) -> None:
    with pytest.raises(ZoneError, match="is not known"):
        moment(NOW_US, zone)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ZoneError, match=re.escape("Did you mean Asia/Shanghai")):
        moment(NOW_US, "Asia/Shangai")


def test_without_zone_data_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tools.moment.available_timezones", set)
    with pytest.raises(ZoneError, match="no time zone data here"):
        moment(NOW_US, "Nowhere/None")


@pytest.mark.parametrize("spec", BUILTINS, ids=lambda spec: spec.name)
def test_built_ins_are_good_definitions(spec: ToolSpec) -> None:
    assert spec.kind is ToolKind.BUILTIN
    assert prepare(spec.parameters).schema == spec.parameters


@pytest.mark.case("C001")
async def test_now_runs_with_no_arguments_at_all() -> None:
    checked = await Arguments().read(NOW, "")
    assert (checked.arguments, checked.fault, checked.replay) == ({"timezone": "UTC"}, None, "{}")


def test_a_built_in_that_is_not_there_is_a_typed_failure() -> None:
    with pytest.raises(ToolFailure, match="no built-in tool 'python'"):
        Builtins(FixedClock()).run("python", {})
