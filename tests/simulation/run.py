"""One run: a seed, a build, and what came of it."""

import asyncio
import gc
import hashlib
from dataclasses import dataclass

from app.core.events import EffectClass
from app.core.lifecycle import StopReason
from tests.simulation.build import SOUND, Build
from tests.simulation.cluster import Cluster
from tests.simulation.loop import OutOfTimeError, Process
from tests.simulation.people import EVERYTHING, answers
from tests.simulation.users import User

FAULTS_S = (6.0, 10.0, 16.0)
REST_S = 90.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run: `violation` None when everything held."""

    seed: int
    build: str
    violation: str | None
    weather: str
    virtual_s: float
    steps: int
    sessions: int
    events: int
    trace: tuple[tuple[object, ...], ...]

    @property
    def trace_hash(self) -> str:
        """Return a hash that two equal runs have in common."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()

    def told(self) -> str:
        """Return the run for a person to read, and how to play it again."""
        names: dict[str, str] = {}
        lines = [_line(entry, names) for entry in self.trace]
        plant = "" if self.build == "sound" else f" PLANT={self.build}"
        return "\n".join(
            (
                f"seed {self.seed} ({self.build}): {self.violation or 'holds'}",
                f"weather: {self.weather}",
                *lines,
                f"play it again: make simulate SEED={self.seed}{plant}",
            )
        )


def _line(entry: tuple[object, ...], names: dict[str, str]) -> str:
    at_s, who, *what = entry
    words = []
    for word in map(str, what):
        if word.startswith("ses_") and " " not in word:
            words.append(names.setdefault(word, f"s{len(names) + 1}"))
        else:
            words.append(word)
    return f"{at_s:9.3f}  {who!s:<6} {' '.join(words)}"


def simulate(seed: int, build: Build = SOUND) -> Outcome:
    """Play the run of a seed."""
    was_on = gc.isenabled()
    gc.disable()  # what is collected runs at no moment of its own
    try:
        with build.patched():
            return _simulate(seed, build)
    finally:
        if was_on:
            gc.enable()


def _simulate(seed: int, build: Build) -> Outcome:
    cluster = Cluster(seed, build)
    for _ in range(2):
        cluster.start_worker()
        cluster.start_api()
    context = cluster.world.context
    users = [
        User(cluster, n, EVERYTHING) for n in range(1, 1 + cluster.chance.choice((1, 2, 2, 3)))
    ]
    living = [cluster.loop.create_task(u.live(), context=context.copy()) for u in users]
    disasters = cluster.loop.create_task(_disasters(cluster), context=context.copy())
    ending = cluster.loop.create_task(_end(cluster, users), context=context.copy())
    late: str | None = None
    try:
        cluster.loop.run()
    except OutOfTimeError as error:
        late = str(error)
    for task in (*living, disasters, ending):
        if task.done() and not task.cancelled() and task.exception() is not None:
            cluster.audit.fail(f"the simulation itself failed: {task.exception()!r}")
    if late is not None:
        cluster.audit.fail(late)
    outcome = Outcome(
        seed,
        build.name,
        cluster.audit.violation,
        str(cluster.weather),
        cluster.loop.time(),
        cluster.loop.steps,
        len(cluster.store.rows),
        sum(ledger.seq for ledger in cluster.audit.ledgers.values()),
        tuple(cluster.audit.trace),
    )
    cluster.bury()
    return outcome


async def _disasters(cluster: Cluster) -> None:
    """Let the weather's disasters happen, at moments drawn from the seed."""
    weather, chance = cluster.weather, cluster.chance
    until_s = chance.choice(FAULTS_S)
    plan = [
        (chance.random() * until_s, strike)
        for strike, times in (
            (_kill, weather.kills),
            (_freeze, weather.freezes),
            (_drain, weather.drains),
            (_outage, weather.outages),
            (_redis_outage, weather.redis_outages),
        )
        for _ in range(times)
    ]
    for at_s, strike in sorted(plan, key=lambda one: one[0]):
        await asyncio.sleep(max(0.0, at_s - cluster.loop.time()))
        await strike(cluster)
    await asyncio.sleep(max(0.0, until_s - cluster.loop.time()))
    cluster.heal()


def _victim(cluster: Cluster) -> Process | None:
    workers = [one.process for one in cluster.workers]
    return cluster.chance.choice([*workers, *workers, *(one.process for one in cluster.apis)])


def _at_some_await(cluster: Cluster, process: Process, blow: object) -> None:
    """Let it happen at once, or at the n-th step that the process will take."""
    assert callable(blow)
    if cluster.chance.random() < 0.3:
        blow()
        return
    process.blow = blow
    process.fuse = cluster.chance.randint(1, 120)


async def _kill(cluster: Cluster) -> None:
    process = _victim(cluster)
    if process is None:
        return
    is_worker = process.name.startswith("w")
    back_s = cluster.chance.choice((0.0, 1.0, 6.0))

    def back() -> None:
        if is_worker:
            cluster.start_worker()
        else:
            cluster.start_api()

    def blow() -> None:
        cluster.kill(process)
        cluster.loop.call_later(back_s, back, context=cluster.world.context)

    _at_some_await(cluster, process, blow)


async def _freeze(cluster: Cluster) -> None:
    process = _victim(cluster)
    seconds = cluster.chance.choice((0.5, 3.0, 5.0, 9.0))
    if process is not None:
        _at_some_await(cluster, process, lambda: cluster.freeze(process, seconds))


async def _drain(cluster: Cluster) -> None:
    if cluster.workers:
        cluster.drain(cluster.chance.choice(cluster.workers))
        await asyncio.sleep(cluster.chance.choice((0.0, 1.0)))
        cluster.start_worker()


async def _outage(cluster: Cluster) -> None:
    cluster.audit.note("pg", "DOWN")
    cluster.postgres.go_down()
    await asyncio.sleep(cluster.chance.choice((0.1, 1.0, 3.0, 6.0)))
    cluster.audit.note("pg", "up")
    cluster.postgres.up = True


async def _redis_outage(cluster: Cluster) -> None:
    cluster.audit.note("redis", "DOWN")
    cluster.redis.go_down()
    await asyncio.sleep(cluster.chance.choice((0.1, 1.0, 4.0)))
    if not cluster.redis.up:
        cluster.audit.note("redis", "up")
        cluster.redis.come_up()


async def _end(cluster: Cluster, users: list[User]) -> None:
    """Once nothing fails any more everything comes to rest in bounded time; look at it then."""
    loop = cluster.loop
    while cluster.cleared_s is None:  # noqa: ASYNC110 - the disasters end by themselves
        await asyncio.sleep(0.5)
    while not _over(cluster, users):
        if loop.time() - cluster.cleared_s > REST_S:
            cluster.audit.fail(f"not at rest: {_unrest(cluster, users)}")
            return
        await asyncio.sleep(0.5)
        for user in users:
            if user.done and user.number % 2:
                for session_id in user.sessions:
                    await answers(user, session_id)
    _last_look(cluster, users)
    loop.stopped = True


def _over(cluster: Cluster, users: list[User]) -> bool:
    tapes = all(tape.complete for user in users for tape in user.tapes)
    return tapes and all(user.done for user in users) and cluster.at_rest()


def _unrest(cluster: Cluster, users: list[User]) -> str:
    busy = [f"u{user.number} waits for an answer" for user in users if not user.done]
    behind = [
        f"a reader of {tape.session_id} is at {tape.last}"
        for user in users
        for tape in user.tapes
        if not tape.complete
    ]
    rows = [
        f"{i} is {row.facts.status}, owner {row.owner}, head {row.head}"
        for i, row in cluster.store.rows.items()
    ]
    return "; ".join((*busy, *behind, *rows))


def _last_look(cluster: Cluster, users: list[User]) -> None:
    """What can only be said of a whole run."""
    audit = cluster.audit
    for why in cluster.died_by_themselves():
        audit.fail(f"a worker died by itself: {why}")
    made = len(users) + sum(user.forks for user in users)
    if len(cluster.store.rows) != made:
        audit.fail(f"{made} sessions were made, there are {len(cluster.store.rows)}")
    for session_id, text in audit.accepted:
        state = audit.ledger(session_id).state
        ended = state.ended if state is not None else None
        barred = ended is not None and ended.reason is StopReason.SECURITY
        if not audit.ledger(session_id).messages[text] and not barred:
            audit.fail(f"{session_id}: the message {text!r} was accepted and is lost")
    _effects(cluster)
    _observed(cluster)
    for session_id, live in audit.live.items():
        fold = audit.ledger(session_id).state
        if fold is not None and live.seq == fold.seq and live != fold:
            audit.fail(f"{session_id}: the live state is not the fold of its journal")


def _effects(cluster: Cluster) -> None:
    """Count effects of `once` calls: a call, and an action in a turn, has at most one."""
    audit = cluster.audit
    by_action: dict[tuple[str, int, str], list[str]] = {}
    for key, times in cluster.outside.effects.items():
        session_id, _, call_id = key.partition(":")
        ledger = audit.ledger(session_id)
        if ledger.intended.get(call_id) is not EffectClass.ONCE:
            continue
        if times > 1:
            audit.fail(f"once: {key} took effect {times} times")
        turn = ledger.root(int(call_id[1:].split("_")[0]))
        action = session_id, turn, cluster.outside.actions[key]
        by_action.setdefault(action, []).append(call_id)
    for (session_id, turn, _), calls in by_action.items():
        if len(calls) > 1:
            audit.fail(f"once: in turn {turn} of {session_id} {calls} are one action")


def _observed(cluster: Cluster) -> None:
    """Whoever wrote an event and lives has told of it, unless another took over at once."""
    audit = cluster.audit
    undisturbed = {p.name for p in cluster.processes if p.undisturbed}
    for session_id, ledger in audit.ledgers.items():
        seen = audit.observed_until.get(session_id, {})
        for seq, (_, writer, epoch) in enumerate(ledger.told, start=1):
            last_epoch = epoch == ledger.epoch
            if seq > 2 and seq not in seen and last_epoch and writer in undisturbed:
                audit.fail(f"{session_id}: {writer} wrote {seq} and told nobody")
