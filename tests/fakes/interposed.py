"""A port with something between it and its user: a death, a lost answer, a delay."""

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")
Between = Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]


class _Interposed:
    def __init__(self, port: object, between: Between) -> None:
        self._port = port
        self._between = between

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._port, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: object, **kwargs: object) -> object:
            return await self._between(name, lambda: attribute(*args, **kwargs))

        return call


def interposed(port: T, between: Between) -> T:
    """Return the port with `between` called for each of its async methods."""
    return cast("T", _Interposed(port, between))


class Killed(BaseException):
    """The process is dead; whatever of it still runs does nothing any more."""


class Death:
    """Kills a process at its n-th call of a port, before or after the call has its effect.

    Or, with `on`, at a call of this name; `when` may still say no.
    """

    def __init__(
        self,
        at: int | None = None,
        *,
        after: bool = False,
        on: str | None = None,
        when: Callable[[], bool] = lambda: True,
    ) -> None:
        self.calls = 0
        self.names: list[str] = []
        self.dead = False
        self._at = at
        self._after = after
        self._on = on
        self._when = when

    async def __call__(self, name: str, call: Callable[[], Awaitable[object]]) -> object:
        self._check()
        self.calls += 1
        self.names.append(name)
        doomed = self._at == self.calls or self._on == name
        if doomed and not self._after and self._when():
            self._die()
        answer = await call()
        if doomed and self._after and self._when():
            self._die()
        self._check()
        return answer

    def _die(self) -> None:
        self.dead = True
        raise Killed

    def _check(self) -> None:
        if self.dead:
            raise Killed


class Faults:
    """Raises what a test puts before or after the next calls of a method."""

    def __init__(self) -> None:
        self.before: dict[str, list[Exception | None]] = defaultdict(list)
        self.after: dict[str, list[Exception | None]] = defaultdict(list)
        self.away: Exception | None = None
        self.calls: list[str] = []

    async def __call__(self, name: str, call: Callable[[], Awaitable[object]]) -> object:
        self.calls.append(name)
        if self.away is not None:
            raise self.away
        _raise_next(self.before[name])
        answer = await call()
        _raise_next(self.after[name])
        return answer


def _raise_next(faults: list[Exception | None]) -> None:
    fault = faults.pop(0) if faults else None
    if fault is not None:
        raise fault
