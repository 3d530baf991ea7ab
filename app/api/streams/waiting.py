"""Waiting that ends early when the process begins to end."""

import asyncio
from collections.abc import Coroutine


async def unless_draining(work: Coroutine[object, object, object], draining: asyncio.Event) -> None:
    """Return when the work is done, or is cut short since the process is ending."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work), group.create_task(_until(draining))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def _until(event: asyncio.Event) -> None:
    await event.wait()
