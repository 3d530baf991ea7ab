"""Every test here runs on virtual time."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.fakes.loop import loop_factories
from tests.runtime.world import World


def pytest_asyncio_loop_factories() -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    return loop_factories()


@pytest.fixture
def world() -> World:
    return World()
