"""The tool port, on the fake and on Postgres."""

import asyncio
from dataclasses import replace

import pytest

from app.core.events import EffectClass, ToolRef
from app.core.toolbox import ApprovalMode, HttpTemplate, ToolKind, ToolSpec
from tests.conformance.conftest import Stores

PLAIN = ToolSpec("now", 0, ToolKind.BUILTIN, "The time.", {"type": "object"})
FULL = ToolSpec(
    name="get_weather",
    version=0,
    kind=ToolKind.HTTP,
    description="Wetter 世界",
    parameters={"type": "object", "properties": {"n": {"type": "number", "maximum": 1.5}}},
    http=HttpTemplate("POST", "http://x/{a}", {"q": 1}, {"h": "v"}, [None, True, {"b": "{c}"}]),
    effect=EffectClass.READ,
    timeout_s=2.5,
    loop_ignore=("t",),
    depends_on=("now",),
    sensitive=("n",),
    serial_group="g",
    enabled=False,
    alias="w",
    approval=ApprovalMode.RULE,
    approval_when="args.n > 1",
    status_check=HttpTemplate("GET", "http://x/{idempotency_key}"),
)


@pytest.mark.req("API-5")
async def test_versions_are_kept_and_numbered(stores: Stores) -> None:
    tools = stores.tools
    first = await tools.save("default", FULL, create=True)
    assert first == replace(FULL, version=1)
    assert await tools.save("default", FULL, create=True) is None
    changed = await tools.save("default", replace(FULL, enabled=True), create=False)
    assert changed == replace(FULL, version=2, enabled=True)
    assert await tools.version("default", ToolRef("get_weather", 1)) == first
    assert await tools.version("default", ToolRef("get_weather", 3)) is None
    assert await tools.version("other", ToolRef("get_weather", 1)) is None
    await tools.save("default", replace(PLAIN, name="a"), create=True)
    assert [t.ref for t in await tools.current("default")] == [
        ToolRef("a", 1),
        ToolRef("get_weather", 2),
    ]
    assert await tools.current("other") == []


async def test_what_is_not_there_cannot_be_changed_or_deleted(stores: Stores) -> None:
    assert await stores.tools.save("default", PLAIN, create=False) is None
    assert not await stores.tools.delete("default", "now")


async def test_a_deleted_tool_stays_for_who_pinned_it(stores: Stores) -> None:
    tools = stores.tools
    await tools.save("default", PLAIN, create=True)
    assert await tools.delete("default", "now")
    assert not await tools.delete("default", "now")
    assert await tools.current("default") == []
    assert await tools.version("default", ToolRef("now", 1)) == replace(PLAIN, version=1)
    assert await tools.save("default", PLAIN, create=False) is None
    again = await tools.save("default", PLAIN, create=True)
    assert again == replace(PLAIN, version=2)


async def test_changes_at_once_get_numbers_of_their_own(stores: Stores) -> None:
    await stores.tools.save("default", PLAIN, create=True)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(stores.tools.save("default", PLAIN, create=False)) for _ in range(8)
        ]
    saved = [task.result() for task in tasks]
    assert sorted(s.version for s in saved if s) == list(range(2, 10))
