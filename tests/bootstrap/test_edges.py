"""What a process says of its servers."""

from app.bootstrap.edges import redis_answers
from app.live.link import Link
from app.runtime.clock import SystemClock


async def test_a_redis_that_was_never_reached_is_not_called_healthy(redis_url: str) -> None:
    clock = SystemClock()
    async with Link("redis://127.0.0.1:1", clock=clock) as nowhere:
        assert not nowhere.broken
        assert not await redis_answers(nowhere)
    async with Link(redis_url, clock=clock) as link:
        assert not link.reached
        assert await redis_answers(link)
