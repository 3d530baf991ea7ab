"""The statements of claim, renew, sweep, release and append, each with one condition out of it.

Tools that change Python see nothing of what a statement says, so its mutants are written by hand:
what is replaced by what, in the text as Postgres gets it.
"""

from typing import Final

from app.storage.sql import ALIVE
from tests.mutants.sql_fault import of

ANY: Final = "true"


_NOT_CLOSED: Final = """ and not exists (
        select from inbox where session_id = $1 and kind = 'close' and subject is not null)"""
_UNOWNED: Final = "coalesce(s.owner <> all((select ids from alive)::text[]), true)"
_KEPT: Final = "case when l.release and s.inbox_head = l.inbox_seen then null else s."
_DUE: Final = "(s.wake_at <= now() or s.timer_at <= now())"


_CLAIM: Final = of(
    "workers",
    "CLAIM",
    ("dead workers are alive", "from workers where lease_until > now()", "from workers"),
    ("a worker without a lease claims", "$1 = any((select ids from alive)::text[])", ANY),
    ("the owner is not looked at under the lock", f"{_DUE}\n            and {_UNOWNED}", _DUE),
    ("nor is what is due", f"and {_DUE}", ""),
    ("rows of others are waited for", "for update of s skip locked", "for update of s"),
    ("rows are not locked", "for update of s skip locked", ""),
    (
        "woken: newer releases' too",
        "<= now() and s.min_version <= 2\n            and",
        "<= now() and",
    ),
    (
        "by timer: newer releases' too",
        "<= now() and s.min_version <= 2\n        and",
        "<= now() and",
    ),
    (
        "woken: under any key",
        f"s.key_id = any($4::text[]) and {_UNOWNED}\n        order by s.w",
        f"{_UNOWNED}\n        order by s.w",
    ),
    (
        "by timer: under any key",
        f"s.key_id = any($4::text[]) and {_UNOWNED}\n    order by s.t",
        f"{_UNOWNED}\n    order by s.t",
    ),
    (
        "woken: owned ones are candidates",
        f" and {_UNOWNED}\n        order by s.w",
        "\n        order by s.w",
    ),
    (
        "by timer: owned ones are candidates",
        f" and {_UNOWNED}\n    order by s.t",
        "\n    order by s.t",
    ),
    ("woken: those of later are candidates", "s.wake_at <= now() and s.min", "s.min"),
    (
        "by timer: those of later are candidates",
        "where s.timer_at <= now() and s.min",
        "where s.timer_at is not null and s.min",
    ),
    ("nobody is woken", "s.wake_at <= now() and s.min", "false and s.min"),
    ("no timer rings", "where s.timer_at <= now() and s.min", "where false and s.min"),
    ("more than asked for", " limit $2::int\n), taken", "\n), taken"),
    ("no share for a tenant", " and t.place <= $3::int", ""),
    ("one tenant after the other", "order by q.place, q.at", "order by q.at"),
    ("of a tenant, not the oldest first", "order by min(at), id)", "order by id)"),
    ("woken: not the oldest are candidates", "order by s.wake_at limit", "order by s.id limit"),
    ("by timer: not the oldest are candidates", "order by s.timer_at limit", "order by s.id limit"),
    ("the epoch stays", "s.epoch + 1", "s.epoch"),
    ("claims are not counted", "s.claims + 1", "s.claims"),
    ("it stays due", ", wake_at = null", ""),
    (
        "the timer stays",
        "case when s.timer_at <= now() then null else s.timer_at end",
        "s.timer_at",
    ),
    (
        "a timer of later is erased",
        "case when s.timer_at <= now() then null else s.timer_at end",
        "null",
    ),
    ("a lost owner is no takeover", "t.owner is not null or s.claims > 1", "s.claims > 1"),
    (
        "a claim without an answer is no takeover",
        "t.owner is not null or s.claims > 1",
        "t.owner is not null",
    ),
    ("a timer of later rang", "case when t.timer_at <= now() then t.timer_at end", "t.timer_at"),
    ("no timer is told", "case when t.timer_at <= now() then t.timer_at end", "null::timestamptz"),
)

_LEASES: Final = (
    *of(
        "workers",
        "CLAIM_ENDING",
        ("dead workers are alive", "from workers where lease_until > now()", "from workers"),
        ("a worker without a lease claims", "$1 = any((select ids from alive)::text[])", ANY),
        ("what was seen", "s.ending > s.inbox_seen", "s.ending is not null", 2),
        ("those of later", "s.wake_at <= now()", "s.wake_at is not null", 2),
        ("newer releases' too", " and s.min_version <= 2", ""),
        ("under any key", "s.key_id = any($3::text[])", ANY),
        ("owned ones", _UNOWNED, ANY, 2),
        ("rows of others are waited for", "for update of s skip locked", "for update of s"),
        ("rows are not locked", "for update of s skip locked", ""),
        ("more than asked for", " limit $2::int\n)", "\n)"),
        ("one tenant after the other", "order by place, wake_at", "order by wake_at"),
        ("of a tenant, not the oldest first", "by s.tenant order by s.wake_at", "by s.tenant"),
        ("the epoch stays", "s.epoch + 1", "s.epoch"),
        ("claims are not counted", "s.claims + 1", "s.claims"),
        ("it stays due", ", wake_at = null", ""),
    ),
    *of(
        "workers",
        "_RENEW",
        ("a lease is not renewed", "update set lease_until = excluded.lease_until", "nothing"),
        ("a lease for ever", "$2::float8 *", "1000 + $2::float8 *"),
    ),
    *of(
        "workers",
        "SWEEP",
        ("living owners too", f"coalesce(o.owner <> all(({ALIVE})::text[]), true)", ANY),
        ("of dead owners only if somebody is alive", ", true)", ", false)"),
        ("a second time", " and s.wake_at is null", ""),
        ("rows of others are waited for", "for update of s skip locked", "for update of s"),
    ),
    *of(
        "workers",
        "_FORGET",
        ("workers of today", " where lease_until < now() - interval '1 day'", ""),
    ),
    *of(
        "workers",
        "_OWNED",
        ("everybody's", " where owner = $1", " where owner = owner or owner = $1"),
        ("all are behind", "inbox_head > inbox_seen", ANY),
        ("none is behind", "inbox_head > inbox_seen", "false"),
    ),
    *of(
        "workers",
        "GIVE_UP",
        ("whoever owns it", " and owner = $1", " and $1 = $1"),
        ("in whatever epoch", " and epoch = $3", " and $3 = $3"),
        ("every session", "where id = $2", "where $2 = $2"),
        ("it keeps its owner", "owner = null, ", ""),
        ("it is not due", "wake_at = now(),", "wake_at = wake_at,"),
        ("always blameless", "case when $4", "case when $4 or true"),
        ("never blameless", "case when $4", "case when $4 and false"),
        ("below none", "greatest(claims - 1, 0)", "claims - 1"),
    ),
    *of(
        "workers",
        "REMOVE",
        ("every worker", "delete from workers where id = $1", "delete from workers where $1 = $1"),
        ("everybody's sessions", "where owner = $1 and", "where $1 = $1 and"),
        ("none is due", "set wake_at = now()", "set wake_at = wake_at"),
        ("what is due moves back", " and wake_at is null", ""),
    ),
    *of("workers", "_ANY_ALIVE", ("dead ones too", " where lease_until > now()", "")),
    *of(
        "workers",
        "_QUEUED",
        ("owned ones too", " and owner is null", ""),
        ("those at rest too", "wake_at <= now() and", ""),
        ("without a bound", " limit $1", " limit $1 * 1000"),
    ),
)

_APPEND: Final = of(
    "journal",
    "APPEND",
    ("any epoch", " and s.epoch = e.epoch", ""),
    ("any head", " and s.head = e.expected", ""),
    ("without an owner", " and (s.owner is null) is false", ""),
    ("what lapses although something was said", "e.unless_behind and", "false and"),
    ("nothing at all while something was said", "e.unless_behind and", "true and"),
    ("rows of others are waited for", "for update of s skip locked", "for update of s"),
    ("rows are not locked", "for update of s skip locked", ""),
    ("events of fenced entries too", " in (select id from written)", " is not null"),
    ("the head stays", "head = l.head,", "head = s.head,"),
    ("the hash stays", "head_hash = l.head_hash,", "head_hash = s.head_hash,"),
    ("what was seen stays", " inbox_seen = l.inbox_seen,", " inbox_seen = s.inbox_seen,"),
    ("always answered", "case when l.answered", "case when true"),
    ("never answered", "case when l.answered", "case when false"),
    ("an old view goes", "coalesce(l.view, s.view)", "l.view"),
    ("a new view is lost", "coalesce(l.view, s.view)", "coalesce(s.view, l.view)"),
    ("the writer's version goes down", "greatest(s.min_version, 2)", "2"),
    ("the writer's version is not noted", "greatest(s.min_version, 2)", "s.min_version"),
    (
        "a release in spite of a message",
        f"owner = {_KEPT}owner end",
        "owner = case when l.release then null else s.owner end",
    ),
    (
        "let go without a release",
        f"owner = {_KEPT}owner end",
        "owner = case when s.inbox_head = l.inbox_seen then null else s.owner end",
    ),
    (
        "not due in spite of a message",
        f"wake_at = {_KEPT}wake_at end",
        "wake_at = case when l.release then null else s.wake_at end",
    ),
    (
        "not due without a release",
        f"wake_at = {_KEPT}wake_at end",
        "wake_at = case when s.inbox_head = l.inbox_seen then null else s.wake_at end",
    ),
    ("still due after a release", f"wake_at = {_KEPT}wake_at end", "wake_at = s.wake_at"),
    (
        "a timer in spite of a message",
        "timer_at = case when l.release and s.inbox_head = l.inbox_seen\n",
        "timer_at = case when l.release\n",
    ),
    (
        "a timer without a release",
        "timer_at = case when l.release and s.inbox_head = l.inbox_seen\n",
        "timer_at = case when s.inbox_head = l.inbox_seen\n",
    ),
    (
        "a timer by the worker's clock",
        "coalesce(now() + (l.timer_at - l.set_at), l.timer_at)",
        "l.timer_at",
    ),
    (
        "told of a release that was none",
        "l.release and s.inbox_head = l.inbox_seen as released",
        "l.release as released",
    ),
    (
        "told of a release that was not asked for",
        "l.release and s.inbox_head = l.inbox_seen as released",
        "s.inbox_head = l.inbox_seen as released",
    ),
)

_IN_TURN: Final = of(
    "journal",
    "APPEND_IN_TURN",
    ("any epoch", " and s.epoch = e.epoch", ""),
    ("any head", " and s.head = e.expected", ""),
    ("without an owner", " and (s.owner is null) is false", ""),
    ("what lapses although something was said", "e.unless_behind and", "false and"),
    ("rows of others are skipped", "for update of s", "for update of s skip locked"),
    ("rows are not locked", "for update of s", ""),
    (
        "a release in spite of a message",
        f"owner = {_KEPT}owner end",
        "owner = case when l.release then null else s.owner end",
    ),
    (
        "not due in spite of a message",
        f"wake_at = {_KEPT}wake_at end",
        "wake_at = case when l.release then null else s.wake_at end",
    ),
)

_JOURNAL: Final = (
    *of("journal", "_WHERE_THEY_ARE", ("without an owner", " and (owner is null) is false", "")),
    *of(
        "journal",
        "_HEADS",
        ("at rest whatever its status", "status not in ('active', 'waiting') and", ""),
        ("at rest with a message", "inbox_head = inbox_seen and", ""),
        ("at rest with an owner", "and owner is null\n", "\n"),
        ("at rest though due", "\n        and (wake_at is null or wake_at > now())", ""),
    ),
    *of(
        "journal",
        "_READ",
        ("from the beginning", " and seq > $2", " and $2 = $2"),
        ("the last one again", "seq > $2", "seq >= $2"),
        ("without a bound", " limit $3", " limit $3 * 1000"),
    ),
    *of(
        "journal",
        "_READ_BOUNDED",
        ("one byte more", "before < $4", "before <= $4"),
        ("from the beginning", " and seq > $2", " and $2 = $2"),
    ),
    *of("journal", "_READ_MANY", ("from the beginning", " and e.seq > a.seq", "")),
    *of("journal", "_SAVE_SNAPSHOT", ("an older one", "where snapshots.seq <= excluded.seq", "")),
    *of(
        "sessions",
        "DELIVER",
        ("behind a request to close", _NOT_CLOSED, ""),
        ("at the same number", "select id, inbox_head + 1", "select id, inbox_head"),
        ("nobody is woken", "wake_at = least(wake_at, now())", "wake_at = wake_at"),
        ("it loses its place", "wake_at = least(wake_at, now())", "wake_at = now()"),
        (
            "an end is not marked",
            "case when $2 in ('cancel', 'close') then",
            "case when false then",
        ),
        (
            "every message is an end",
            "case when $2 in ('cancel', 'close') then",
            "case when true then",
        ),
    ),
    *of(
        "sessions",
        "_NEWEST",
        ("what was seen too", " and s.inbox_head > s.inbox_seen", ""),
        ("not the newest", " and i.n = s.inbox_head", ""),
    ),
    *of(
        "sessions",
        "WAKE",
        ("everybody", " where id = $1", " where $1 = $1"),
        ("it loses its place", "least(wake_at, now())", "now()"),
        ("nobody", "least(wake_at, now())", "wake_at"),
    ),
)

FAULTS: Final = (*_CLAIM, *_LEASES, *_APPEND, *_IN_TURN, *_JOURNAL)
TESTS: Final = (
    "tests/conformance/test_workers.py",
    "tests/conformance/test_claims.py",
    "tests/conformance/test_journal.py",
    "tests/conformance/test_sessions.py",
    "tests/storage/test_races.py",
    "tests/storage/test_in_turn.py",
    "tests/storage/test_claim_races.py",
    "tests/storage/test_claims_of_ends.py",
)
