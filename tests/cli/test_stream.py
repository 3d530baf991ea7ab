"""Giving up on a stream: late enough for a restart, but not never."""

import asyncio

import pytest

from app.cli.client import Service
from app.cli.outcome import Exit, ServiceError, UnreachableError
from app.cli.stream import Cut, Item, StreamReader
from tests.cli.fake_service import Cut as Break
from tests.cli.fake_service import FakeService, problem


async def read_until_it_gives_up(url: str) -> tuple[list[Item], list[float], Exception]:
    pauses: list[float] = []

    def read() -> tuple[list[Item], Exception]:
        items: list[Item] = []
        with Service(url=url, api_key=None, pause=pauses.append) as service:
            try:
                items.extend(StreamReader(service, "ses_1").items())
            except (UnreachableError, ServiceError) as error:
                return items, error
        raise AssertionError("it did not give up")

    items, error = await asyncio.to_thread(read)
    return items, pauses, error


async def test_a_stream_that_only_breaks_is_given_up_after_some_40_seconds(
    service: FakeService,
) -> None:
    service.streams = [[Break()] for _ in range(20)]
    items, pauses, error = await read_until_it_gives_up(service.url)
    assert [type(item) for item in items] == [Cut] * 11
    assert 30 < sum(pauses) < 50
    assert isinstance(error, UnreachableError)
    assert error.code == Exit.UNREACHABLE


@pytest.mark.parametrize("status", [500, 503])
async def test_a_service_that_stays_unready_is_given_up(service: FakeService, status: int) -> None:
    path = "GET /v1/sessions/ses_1/stream"
    service.answers[path] = [problem(status, "Not ready") for _ in range(20)]
    _, pauses, error = await read_until_it_gives_up(service.url)
    assert len(pauses) == 11
    assert isinstance(error, ServiceError)


async def test_what_is_no_stream_is_given_up(service: FakeService) -> None:
    service.streams = [[] for _ in range(20)]
    items, _, error = await read_until_it_gives_up(service.url)
    assert items[0] == Cut("the stream ended before the turn did")
    assert "before the turn did" in str(error)
