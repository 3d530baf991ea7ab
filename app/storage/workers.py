"""Leases of workers and claims of sessions, all by Postgres's clock.

The session's row is the queue: due when `wake_at` or `timer_at` has come, taken by writing the
owner into it. A claim raises the epoch, which fences off whoever owned it before.
"""

from collections.abc import Sequence
from typing import Final

from asyncpg import Record

from app.runtime.ports.keys import WrappedKey
from app.runtime.ports.workers import Claim, Owned
from app.runtime.times import maybe_us
from app.storage.engine import Engine
from app.storage.sql import ALIVE, JOURNAL_V, unowned

_RENEW: Final = """
insert into workers (id, lease_until, started_at, version)
values ($1, now() + $2::float8 * interval '1 second', now(), $3)
on conflict (id) do update set lease_until = excluded.lease_until
"""

_CLAIMED: Final = """
returning s.id, s.tenant, s.epoch, s.claims, s.key_id, s.data_key, s.head, s.head_hash,
    s.inbox_head, s.inbox_seen, t.owner is not null or s.claims > 1 as takeover,
    case when t.timer_at <= now() then t.timer_at end as rang_at
"""

# The tenants that have something due are found by hopping over the index, and only a few rows of
# each are looked at: a tenant with ten thousand due sessions costs and delays nobody else. More
# rows are looked at than may be taken, because another worker may hold some of them right now.
# The rows are locked one by one by their keys (lateral), never by reading the whole table.
CLAIM: Final = f"""
with recursive alive as materialized (
    select array_agg(id) as ids from workers where lease_until > now()
), tenants as (
    (select tenant from sessions where wake_at is not null order by tenant limit 1)
    union all
    select (select s.tenant from sessions s where s.wake_at is not null and s.tenant > t.tenant
        order by s.tenant limit 1) from tenants t where t.tenant is not null
), due as (
    select d.id, d.tenant, d.at from tenants t, lateral (
        select s.id, s.tenant, s.wake_at as at from sessions s
        where s.tenant = t.tenant and s.wake_at <= now() and s.min_version <= {JOURNAL_V}
            and s.key_id = any($4::text[]) and {unowned("s", "select ids from alive")}
        order by s.wake_at limit 4 * $3::int
    ) d
    union all
    (select s.id, s.tenant, s.timer_at from sessions s
    where s.timer_at <= now() and s.min_version <= {JOURNAL_V}
        and s.key_id = any($4::text[]) and {unowned("s", "select ids from alive")}
    order by s.timer_at limit 4 * $2::int)
), queued as (
    select id, min(at) as at, row_number() over (partition by tenant order by min(at), id) as place
    from due group by id, tenant
), locked as (
    select s.id, s.tenant, s.owner, s.timer_at, q.at
    from (select * from queued q order by q.place, q.at) q, lateral (
        select s.id, s.tenant, s.owner, s.timer_at from sessions s
        where s.id = q.id and (s.wake_at <= now() or s.timer_at <= now())
            and {unowned("s", "select ids from alive")}
        for update of s skip locked
    ) s
    where $1 = any((select ids from alive)::text[]) limit $2::int
), taken as (
    select *, row_number() over (partition by tenant order by at) as place from locked
)
update sessions s set owner = $1, epoch = s.epoch + 1, claims = s.claims + 1, wake_at = null,
    timer_at = case when s.timer_at <= now() then null else s.timer_at end
from taken t where s.id = t.id and t.place <= $3::int
{_CLAIMED}
"""  # noqa: S608 - made of constants of this room

# Found by an index of its own: it costs next to nothing when nobody asked, however many wait.
CLAIM_ENDING: Final = f"""
with alive as materialized (
    select array_agg(id) as ids from workers where lease_until > now()
), asked as (
    select s.id, s.wake_at, row_number() over (partition by s.tenant order by s.wake_at) as place
    from sessions s
    where s.ending > s.inbox_seen and s.wake_at <= now() and s.min_version <= {JOURNAL_V}
        and s.key_id = any($3::text[]) and {unowned("s", "select ids from alive")}
), taken as (
    select s.id, s.owner, s.timer_at
    from (select * from asked order by place, wake_at limit 4 * $2::int) a, lateral (
        select s.id, s.owner, s.timer_at from sessions s
        where s.id = a.id and s.ending > s.inbox_seen and s.wake_at <= now()
            and {unowned("s", "select ids from alive")}
        for update of s skip locked
    ) s
    where $1 = any((select ids from alive)::text[]) limit $2::int
)
update sessions s set owner = $1, epoch = s.epoch + 1, claims = s.claims + 1, wake_at = null,
    timer_at = case when s.timer_at <= now() then null else s.timer_at end
from taken t where s.id = t.id
{_CLAIMED}
"""  # noqa: S608 - made of constants of this room

# Owners are few and sessions many, so the owners are found by hopping over the index, and their
# sessions by an array: a join could be planned as a walk over all.
SWEEP: Final = f"""
with recursive owners as (
    (select owner from sessions where owner is not null order by owner limit 1)
    union all
    select (select s.owner from sessions s where s.owner > o.owner order by s.owner limit 1)
    from owners o where o.owner is not null
), lost as (
    select s.id from sessions s
    where s.owner = any(array(select o.owner from owners o where {unowned("o", ALIVE)}))
        and s.wake_at is null for update of s skip locked
)
update sessions s set wake_at = now() from lost where s.id = lost.id
"""  # noqa: S608 - made of constants of this room

_FORGET: Final = "delete from workers where lease_until < now() - interval '1 day'"

_OWNED: Final = """
select id, epoch, inbox_head > inbox_seen from sessions where owner = $1 order by id
"""

GIVE_UP: Final = """
update sessions set owner = null, wake_at = now(),
    claims = case when $4 then greatest(claims - 1, 0) else claims end
where id = $2 and owner = $1 and epoch = $3
"""

REMOVE: Final = """
with gone as (delete from workers where id = $1)
update sessions set wake_at = now() where owner = $1 and wake_at is null
"""

_ANY_ALIVE: Final = "select exists (select from workers where lease_until > now())"


_QUEUED: Final = """
select count(*) from (
    select from sessions where wake_at <= now() and owner is null limit $1
) as waiting
"""


class PostgresWorkers:
    """Leases and claims, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Work through this pool."""
        self._engine = engine

    async def renew(self, worker: str, lease_s: float) -> None:
        """Create or renew this worker's lease, whoever waits for a connection."""
        await self._engine.run_apart(_RENEW, worker, lease_s, JOURNAL_V)

    async def claim(
        self, worker: str, limit: int, per_tenant: int, keys: Sequence[str]
    ) -> list[Claim]:
        """Take up to `limit` sessions that are due and have no living owner.

        Sessions under other master keys are left to those who have them. None are given to a
        worker whose own lease is over. At most `per_tenant` of one tenant are taken at a time,
        tenants taking turns, what has been due longest first.
        """
        rows = await self._engine.rows(CLAIM, worker, limit, per_tenant, keys)
        return [_claim_of(row) for row in rows]

    async def claim_ending(self, worker: str, limit: int, keys: Sequence[str]) -> list[Claim]:
        """Take up to `limit` of those due sessions whose inbox holds a cancel or a close.

        Otherwise as `claim`: tenants taking turns, what has been due longest first.
        """
        rows = await self._engine.rows(CLAIM_ENDING, worker, limit, keys)
        return [_claim_of(row) for row in rows]

    async def sweep(self) -> int:
        """Make due every session whose owner's lease is over; return how many."""
        await self._engine.run(_FORGET)
        return await self._engine.run(SWEEP)

    async def owned(self, worker: str) -> list[Owned]:
        """Return the sessions which this worker owns now."""
        return [Owned(*row.values()) for row in await self._engine.rows(_OWNED, worker)]

    async def give_up(self, worker: str, session_id: str, epoch: int, *, blameless: bool) -> None:
        """Let a session go without an append, due at once for another owner.

        A claim that ended without the session's fault (`blameless`) is not counted against it.
        """
        await self._engine.run(GIVE_UP, worker, session_id, epoch, blameless)

    async def remove(self, worker: str) -> None:
        """End this worker's lease; what it still owns becomes due at once."""
        await self._engine.run(REMOVE, worker)

    async def any_alive(self) -> bool:
        """Return whether some worker's lease holds."""
        return bool(await self._engine.value(_ANY_ALIVE))

    async def queued(self, most: int) -> int:
        """Return how many sessions are due and have no owner; counted no further than `most`."""
        row = await self._engine.row(_QUEUED, most)
        return 0 if row is None else int(row[0])


def _claim_of(row: Record) -> Claim:
    return Claim(
        session_id=row["id"],
        tenant=row["tenant"],
        epoch=row["epoch"],
        claims=row["claims"],
        key=WrappedKey(row["key_id"], row["data_key"]),
        head=row["head"],
        head_hash=row["head_hash"],
        inbox_head=row["inbox_head"],
        inbox_seen=row["inbox_seen"],
        takeover=row["takeover"],
        rang_us=maybe_us(row["rang_at"]),
    )
