"""Every interleaving of deliver, claim, append, release, sweep and lost leases, in a small model.

One session, two workers, two messages. Each step is one statement of `docs/writes.md`, atomic as
the lock on the session's row makes it; a delivery is two steps, since it holds the lock between
them. Taking out any one of the rules makes the search find what the rule is for.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

MESSAGES: Final = 2
MISFORTUNES: Final = 2
"""Lost leases, crashes and lost answers, together."""


@dataclass(frozen=True)
class Rules:
    """What the statements check; each is True in the real ones."""

    release_only_when_inbox_is_seen: bool = True
    append_checks_epoch: bool = True
    append_checks_head: bool = True
    claim_checks_lease: bool = True
    sweep_wakes: bool = True
    delivery_wakes: bool = True
    owner_looks_after_its_own: bool = True


@dataclass(frozen=True)
class Worker:
    """A worker's own view: `epoch` 0 while it runs nothing; `known` is how far it read.

    `lapsed`: its lease was over at some time since it claimed, so it sends no more effects;
    `unheard`: it waits for the answer to an append, and sends none before it has read back.
    """

    alive: bool = True
    lapsed: bool = False
    unheard: bool = False
    crashed: bool = False
    epoch: int = 0
    head: int = 0
    known: int = 0
    done: bool = False


@dataclass(frozen=True)
class World:
    """The row, the two workers, what may still go wrong, and `bad`: what an append broke."""

    owner: int | None = None
    epoch: int = 0
    wake: bool = True
    head: int = 0
    inbox: int = 0
    seen: int = 0
    locked_at: int | None = None
    workers: tuple[Worker, ...] = (Worker(), Worker())
    left: int = MISFORTUNES
    bad: str | None = None

    def with_worker(self, n: int, **changes: object) -> "World":
        workers = list(self.workers)
        workers[n] = replace(workers[n], **changes)  # type: ignore[arg-type]
        return replace(self, workers=tuple(workers))


def steps(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Every step that can be taken now."""
    yield from _delivery(world, rules)
    if rules.sweep_wakes and world.locked_at is None and not world.wake and _owner_lost(world):
        yield "sweep", replace(world, wake=True)
    for n, worker in enumerate(world.workers):
        yield from _misfortune(world, n, worker)
        if worker.crashed:
            continue
        yield from _claim(world, n, worker, rules)
        if worker.epoch:
            yield from _append(world, n, worker, rules)


def _owner_lost(world: World) -> bool:
    return world.owner is not None and not world.workers[world.owner].alive


def _delivery(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.locked_at is not None:
        yield (
            "commit",
            replace(
                world,
                inbox=world.locked_at + 1,
                wake=world.wake or rules.delivery_wakes,
                locked_at=None,
            ),
        )
    elif world.inbox < MESSAGES:
        yield "lock", replace(world, locked_at=world.inbox)


def _misfortune(world: World, n: int, worker: Worker) -> Iterator[tuple[str, World]]:
    if worker.alive and world.left and not worker.crashed:
        yield (
            f"lease of {n} over",
            replace(world.with_worker(n, alive=False, lapsed=True), left=world.left - 1),
        )
    if not worker.alive and not worker.crashed:
        yield f"{n} renews", world.with_worker(n, alive=True)
    # The other one must live to see the end.
    if world.left and not worker.crashed and not any(w.crashed for w in world.workers):
        yield (
            f"{n} crashes",
            replace(
                world.with_worker(n, crashed=True, alive=False, epoch=0, unheard=False),
                left=world.left - 1,
            ),
        )


def _claim(world: World, n: int, worker: Worker, rules: Rules) -> Iterator[tuple[str, World]]:
    free = world.owner is None or not rules.claim_checks_lease or _owner_lost(world)
    idle = worker.alive and not worker.epoch and world.locked_at is None
    if idle and world.owner == n and rules.owner_looks_after_its_own:
        yield f"{n} gives up what it does not run", replace(world, owner=None, wake=True)
    if not (idle and world.wake and free):
        return
    taken = replace(world, owner=n, epoch=world.epoch + 1, wake=False)
    if world.left:
        yield f"{n} claims, unheard", replace(taken, left=world.left - 1)
    yield (
        f"{n} claims",
        taken.with_worker(
            n, epoch=taken.epoch, head=world.head, known=world.inbox, done=False, lapsed=False
        ),
    )


def _append(world: World, n: int, worker: Worker, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.locked_at is not None:
        return  # skipped, and tried again later
    if rules.append_checks_epoch and worker.epoch != world.epoch:
        yield f"{n} is fenced off", world.with_worker(n, epoch=0, unheard=False)
        return
    if rules.append_checks_head and worker.head != world.head:
        yield f"{n} reads back", _read_back(world, n)
        return
    for label, after in _written(world, n, worker, rules):
        yield f"{n} appends{label}", after
        if world.left:
            # Committed, and the connection lost: the worker stands where it stood.
            unheard = replace(after, left=world.left - 1)
            yield (
                f"{n} appends{label}, unheard",
                unheard.with_worker(n, **{**vars(worker), "unheard": True}),
            )


def _read_back(world: World, n: int) -> World:
    if world.owner is None:
        return world.with_worker(n, epoch=0, unheard=False)
    return world.with_worker(n, head=world.head, known=world.inbox, unheard=False)


def _written(world: World, n: int, worker: Worker, rules: Rules) -> Iterator[tuple[str, World]]:
    written = replace(world, head=worker.head + 1, seen=worker.known, bad=_broken(world, worker))
    if not worker.done:  # work in the middle of a turn, once is enough
        yield "", written.with_worker(n, head=written.head, known=world.inbox, done=True)
    if world.inbox == worker.known or not rules.release_only_when_inbox_is_seen:
        yield " and releases", replace(written, owner=None, wake=False).with_worker(n, epoch=0)
    else:
        yield " and goes on", written.with_worker(n, head=written.head, known=world.inbox)


def _broken(world: World, worker: Worker) -> str | None:
    if worker.epoch != world.epoch:
        return "an owner that was replaced has written"
    return "two appends under one head" if worker.head != world.head else None


def fault(world: World) -> str | None:
    """What must never be, whatever happens next."""
    if world.bad:
        return world.bad
    if world.inbox > world.seen and world.owner is None and not world.wake:
        return "a message that nobody will see"
    if sum(1 for w in world.workers if w.epoch and not w.lapsed and not w.unheard) > 1:
        return "two owners at once"
    return None


def explore(rules: Rules) -> str | None:
    """Return the first fault found, with the steps that lead to it; None when there is none."""
    start = World()
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    before: dict[World, list[World]] = {start: []}
    queue = deque([start])
    while queue:
        world = queue.popleft()
        nexts = list(steps(world, rules))
        found = fault(world) or (None if nexts else _unfinished(world))
        if found:
            return f"{found}: {_path(world, came_from)}"
        for label, after in nexts:
            if after not in came_from:
                came_from[after] = (world, label)
                before[after] = []
                queue.append(after)
            before[after].append(world)
    return _stuck(before)


def _unfinished(world: World) -> str | None:
    at_rest = world.owner is None and not world.wake and world.inbox == world.seen == MESSAGES
    return None if at_rest else "it ends unfinished"


def _stuck(before: dict[World, list[World]]) -> str | None:
    """Return a world from which no way leads to the good end, if there is one."""
    good = [world for world in before if _unfinished(world) is None]
    seen = set(good)
    while good:
        for earlier in before[good.pop()]:
            if earlier not in seen:
                seen.add(earlier)
                good.append(earlier)
    left = before.keys() - seen
    return f"stuck: {next(iter(left))}" if left else None


def _path(world: World, came_from: dict[World, tuple[World, str] | None]) -> str:
    labels = []
    step = came_from[world]
    while step:
        labels.append(step[1])
        step = came_from[step[0]]
    return ", ".join(reversed(labels))


@pytest.mark.req("STATE-4", "API-7")
def test_no_interleaving_loses_a_message_or_writes_twice() -> None:
    assert explore(Rules()) is None


@pytest.mark.parametrize(
    ("rule", "finds"),
    [
        ("release_only_when_inbox_is_seen", "a message that nobody will see"),
        ("append_checks_epoch", "an owner that was replaced has written"),
        ("append_checks_head", "two appends under one head"),
        ("claim_checks_lease", "two owners at once"),
        ("sweep_wakes", "it ends unfinished"),
        ("delivery_wakes", "a message that nobody will see"),
        ("owner_looks_after_its_own", "it ends unfinished"),
    ],
)
def test_each_rule_is_needed(rule: str, finds: str) -> None:
    found = explore(replace(Rules(), **{rule: False}))
    assert found is not None
    assert found.startswith(finds)


def test_the_lost_message_is_the_one_that_comes_as_the_turn_ends() -> None:
    found = explore(Rules(release_only_when_inbox_is_seen=False))
    assert found is not None
    assert found.endswith("0 claims, lock, commit, 0 appends and releases")
