"""The disasters of a run: processes die, stop and leave; Postgres and Redis go away."""

import asyncio
from collections.abc import Callable

from tests.simulation.cluster import Cluster
from tests.simulation.loop import Process

TRAPS = (
    *("tool", "tool", "tool", "model", "publish", "inbox", "claim", "renew", "read_many"),
    *("append_batch", "append_batch", "append_batch", "give_up", "lock", "commit", "create"),
    *("schedules.advance", "schedules.commit", "webhooks.claim", "webhooks.settle", "post"),
    *("schedules.find", "schedules.find"),
    *("begin_remembering", "finish_remembering"),
)
"""What processes are caught at."""
FAULTS_S = (6.0, 10.0, 16.0)


async def disasters(cluster: Cluster) -> None:
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


def _at_some_await(cluster: Cluster, process: Process, blow: Callable[[], None]) -> None:
    """Let it happen at once, at the n-th step of the process, or just when it does something."""
    how = cluster.chance.random()
    process.blow = blow
    if how < 0.2:
        blow()
    elif how < 0.5:
        process.fuse = cluster.chance.randint(1, 120)
    else:
        process.trap = cluster.chance.choice(TRAPS)


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
