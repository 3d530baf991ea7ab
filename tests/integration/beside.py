"""Cases that mostly wait, run beside each other; each test then looks at the outcome of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

import pytest

AT_ONCE: Final = 8
"""Each case has three processes with a few connections each."""

C = TypeVar("C")
T = TypeVar("T")


class Outcomes(Generic[C, T]):
    """What became of each case."""

    def __init__(self) -> None:
        """Start without any."""
        self._found: dict[C, T | Exception] = {}

    async def run(self, cases: Iterable[C], work: Callable[[C], Awaitable[T]]) -> None:
        """Run cases, some at once; what goes wrong in one is its own outcome."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(case: C) -> None:
            async with room:
                try:
                    self._found[case] = await work(case)
                except Exception as problem:  # noqa: BLE001 - raised again by the case's own test
                    self._found[case] = problem

        async with asyncio.TaskGroup() as group:
            for case in dict.fromkeys(cases):
                group.create_task(one(case))

    def of(self, case: C) -> T:
        """Return a case's outcome, or raise what went wrong in it."""
        found = self._found[case]
        if isinstance(found, Exception):
            raise found
        return found


def wanted(request: pytest.FixtureRequest, name: str) -> list[object]:
    """Return the values of a parameter in those tests of the module that are run."""
    return [
        item.callspec.params[name]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and name in item.callspec.params
    ]
