"""Waiting for a condition, instead of sleeping and hoping."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, timeout_s: float = 60.0, what: str = ""
) -> None:
    """Return as soon as the condition (plain or async) holds; TimeoutError names it otherwise.

    The time is long since it costs nothing: only a test that fails waits for all of it.
    """
    try:
        async with asyncio.timeout(timeout_s):
            # What happens in another process or a server sets no event here.
            while not await _holds(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_s} s: {what or condition}") from None


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return answer if isinstance(answer, bool) else await answer
