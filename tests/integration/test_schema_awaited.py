"""A process that was started before the migration: it waits, says so, and can be stopped."""

import asyncio

import pytest

from tests.integration.process import Role
from tests.integration.stack import Stacks
from tests.waiting import until


@pytest.mark.req("OPS-4")
@pytest.mark.parametrize("role", ["worker", "all"])
async def test_sigterm_ends_a_process_that_waits_for_the_schema(stacks: Stacks, role: Role) -> None:
    async with stacks.open() as stack:
        await stack.rows("delete from alembic_version")
        process = await stack.start(role, ready=False)
        await until(lambda: "schema.awaited" in process.text(), what="it waits for the schema")
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
