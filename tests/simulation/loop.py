"""An event loop on virtual time whose order is the seed's, and processes that can die on it.

Several simulated processes share the loop. Every task and timer belongs to the process in whose
context it was made: when that process is dead or frozen, what is due for it is set aside. So a
process is killed or stopped at any await, with nothing of it cleaned up, as by kill -9.
"""

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Final, TypeVar, cast

from typing_extensions import override

T = TypeVar("T")
STEPS_FROM_TRAP: Final = 5
_ROUNDS: Final = 4
"""How often what is left is cancelled: cleaning up may wait once more."""


class Condition(Enum):
    """How a process is."""

    RUNNING = 1
    FROZEN = 2
    DEAD = 3


class Process:
    """One simulated process; `fuse` counts its steps down to what `blow` does to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.condition = Condition.RUNNING
        self.parked: list[SimHandle] = []
        self.fuse = 0
        self.blow: Callable[[], None] = lambda: None
        self.trap: str | None = None
        """Something a process does: when it does it next, its fuse is lit."""
        self.stopped_at_s: float | None = None
        """When it was last frozen or killed, if it ever was."""
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    @property
    def alive(self) -> bool:
        return self.condition is not Condition.DEAD

    def reaches(self, what: str, chance: random.Random) -> None:
        """Note that the process begins to do something: a trap may have been laid there."""
        if self.trap == what:
            self.trap, self.fuse = None, chance.randint(1, STEPS_FROM_TRAP)

    @property
    def undisturbed(self) -> bool:
        return self.stopped_at_s is None


PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process")


class SimHandle(asyncio.TimerHandle):
    """What is due, with the process it belongs to."""

    __slots__ = ("call", "given", "owner", "place")

    def __init__(  # a handle of the loop's own: nothing of the base class's is needed
        self,
        call: Callable[..., object],
        given: tuple[object, ...],
        place: contextvars.Context,
    ) -> None:
        self.call: Callable[..., object] | None = call
        self.given = given
        self.place = place
        self.owner = place[PROCESS]

    @override
    def cancel(self) -> None:
        self.call, self.given = None, ()

    @override
    def cancelled(self) -> bool:
        return self.call is None


class SimTask(asyncio.Task[T]):
    """A task with a number, so that its place in the order depends on no memory address."""

    def __init__(
        self,
        coro: Coroutine[object, object, T],
        *,
        loop: "SeededLoop",
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        loop.made.append(cast("SimTask[object]", self))
        self.n = len(loop.made)
        self.steps = 0
        super().__init__(coro, loop=loop, name=name, context=context)


class OutOfTimeError(Exception):
    """The run did not end within its virtual time, or nothing could ever happen again."""


class SeededLoop(asyncio.AbstractEventLoop):
    """Runs whatever is due in an order drawn from the seed; time passes when nothing is due."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self.made: list[SimTask[object]] = []
        self.steps = 0
        self.stopped = False
        self.error: BaseException | None = None
        self._seed = seed
        self._longest_s = longest_s
        self._now_s = 0.0
        self._count = 0
        self._soon: deque[SimHandle] = deque()
        self._ready: list[tuple[int, int, SimHandle]] = []
        self._timers: list[tuple[float, int, SimHandle]] = []

    # --- what asyncio asks of a loop

    @override
    def time(self) -> float:
        return self._now_s

    @override
    def get_debug(self) -> bool:
        return False

    @override
    def is_running(self) -> bool:
        return True

    @override
    def create_future(self) -> asyncio.Future[object]:
        return asyncio.Future(loop=self)

    @override
    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[object, object, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_newer: object,
    ) -> SimTask[T]:
        return SimTask(coro, loop=self, name=name, context=context)

    @override
    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = SimHandle(callback, args, context or contextvars.copy_context())
        self._enqueue(handle)
        return handle

    @override
    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = SimHandle(callback, args, context or contextvars.copy_context())
        self._count += 1
        heapq.heappush(self._timers, (max(when, self._now_s), self._count, handle))
        return handle

    @override
    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Say nothing: an unheard exception of a task is looked at where the task was made."""

    # --- the order

    def _enqueue(self, handle: SimHandle) -> None:
        """Put a step of a task at a place drawn from the seed; other callbacks come at once."""
        task = getattr(handle.call, "__self__", None)
        if type(task) is not SimTask:
            self._soon.append(handle)
            return
        task.steps += 1
        self._count += 1
        place = hash((self._seed, task.n, task.steps))
        heapq.heappush(self._ready, (place, self._count, handle))

    def run(self) -> None:
        """Run until `stopped`.

        Raises:
            OutOfTimeError: when the run does not come to its end.

        """
        before = asyncio._get_running_loop()  # noqa: SLF001 - a loop of one's own has to
        asyncio._set_running_loop(self)  # noqa: SLF001 - the same
        try:
            while not self.stopped:
                self._step()
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001 - the same
        if self.error is not None:
            raise self.error

    def _step(self) -> None:
        if self._soon:
            handle, step = self._soon.popleft(), False
        elif self._ready:
            handle, step = heapq.heappop(self._ready)[2], True
        else:
            self._pass_time()
            return
        call, owner = handle.call, handle.owner
        if call is None:
            return
        if step and owner.fuse and owner.condition is Condition.RUNNING:
            owner.fuse -= 1
            if not owner.fuse:
                owner.blow()
        if owner.condition is not Condition.RUNNING:
            owner.parked.append(handle)
            return
        self.steps += 1
        try:
            handle.place.run(call, *handle.given)
        except Exception as error:  # noqa: BLE001 - a broken simulation ends with its error
            self.error, self.stopped = error, True

    def _pass_time(self) -> None:
        if not self._timers or self._now_s > self._longest_s:
            self.stopped = True
            self.error = OutOfTimeError(f"not at rest at {self._now_s:.1f} s")
            return
        self._now_s = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self._now_s:
            handle = heapq.heappop(self._timers)[2]
            if handle.call is not None:
                self._enqueue(handle)

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on: whatever became due meanwhile is due at once."""
        process.condition = Condition.RUNNING
        parked, process.parked = process.parked, []
        for handle in parked:
            self._enqueue(handle)

    def bury(self, processes: list[Process]) -> None:
        """End every task that is left, so that no coroutine is thrown away half-way.

        Ports must refuse everything by now.
        """
        for process in processes:
            process.fuse = 0
            self.thaw(process)
        self.stopped, self.error = False, None
        before = asyncio._get_running_loop()  # noqa: SLF001 - as in `run`
        asyncio._set_running_loop(self)  # noqa: SLF001 - the same
        try:
            for _ in range(_ROUNDS):
                self._cancel_all()
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001 - the same
        for task in self.made:
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - it waits for nothing any more
        self.made.clear()
        self._timers.clear()

    def _cancel_all(self) -> None:
        for task in self.made:
            if not task.done():
                task.cancel()
        while self._soon or self._ready:
            self._step()


def running() -> SeededLoop:
    """Return the loop of the simulation that runs."""
    return cast("SeededLoop", asyncio.get_running_loop())
