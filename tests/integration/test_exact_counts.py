"""What a session costs, in exact counts: statements, commits, Redis commands and spans.

The figures are those of docs/performance.md. What a process does by the clock, whether or not a
session runs, is told apart by name and left out: renewals, sweeps, polls, head checks, signs of
life, and the opening of connections.
"""

import re
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.storage.journal import APPEND
from app.storage.sessions import CREATE
from app.storage.workers import CLAIM, GIVE_UP, REMOVE, SWEEP
from tests.integration.counting import Executed, counted_postgres, counted_redis
from tests.integration.stack import Stacks
from tests.integration.test_promise import SHOP
from tests.otlp.receiver import receiver
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import SCRIPTS
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
BY_THE_CLOCK = {
    *("renewal", "sweep", "poll", "head check", "sign of life", "connection"),
    *("side jobs due", "queue of side jobs", "queue"),
}
WRITING = {"create", "claim", "append"}
_KNOWN = {APPEND: "append", CREATE: "create", SWEEP: "sweep", GIVE_UP: "give up", REMOVE: "remove"}
_BEGINNINGS = (
    (r"insert into workers", "renewal"),
    (r"delete from workers where lease_until", "sweep"),
    (r"select id, epoch, inbox_head > inbox_seen from sessions where owner", "poll"),
    (r"select id, head, head_hash", "head check"),
    (r"select count\(\*\) from \( select from sessions where wake_at <= now\(\)", "queue"),
    (r"select 1$|select to_regclass|select version_num", "sign of life"),
    (r"with recursive waiting as", "side jobs due"),
    (r"select id from schedules", "side jobs due"),
    (r"select exists \(select from sessions where", "side jobs due"),
    (r"select exists \( select from information_schema|.*pgqueuer", "queue of side jobs"),
    (r"select exists \( select 1 from pg_indexes|.* from pg_enum ", "queue of side jobs"),
    (r"select pg_notify\(\$1, \$2\)", "queue of side jobs"),
    (r"set |listen |with recursive typeinfo_tree|select current_setting", "connection"),
    (r"select .* from unnest\(\$1::text\[\], \$2::bigint\[\]\) as a", "read short journals"),
    (r"select case when t.min_version <= .* from tool_heads", "tools"),
)


def label(executed: Executed) -> str:
    """Name a statement; a claim that took nothing is a poll."""
    if executed.sql == CLAIM:
        return "poll" if executed.tag == "UPDATE 0" else "claim"
    if executed.sql in _KNOWN:
        return _KNOWN[executed.sql]
    text = " ".join(executed.sql.lower().split())
    return next((name for pattern, name in _BEGINNINGS if re.match(pattern, text)), text[:80])


@dataclass(frozen=True, slots=True)
class Cost:
    """What a session has cost."""

    statements: Counter[str]
    redis: Counter[str]
    spans: Counter[str]

    @property
    def commits(self) -> int:
        """Transactions that wrote something: here each statement is one of its own."""
        return sum(n for name, n in self.statements.items() if name in WRITING)


async def cost_of(stacks: Stacks, script: str, task: str) -> Cost:
    """Run one session in a process of its own and count what it caused."""
    async with AsyncExitStack() as held:
        enter = held.enter_async_context
        model = await enter(ScriptedModel(SCRIPTS[script]))
        collector = await enter(receiver())
        stack = await enter(stacks.open(model=model.base_url, lease_s=15))
        postgres = await enter(counted_postgres(stack.dsn))
        env = {
            "SUREFOOT_DATABASE_URL": postgres.dsn,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        client = stack.client(await stack.start("all", env=env))
        redis = await enter(counted_redis(stacks.redis_url))
        postgres.statements.clear()
        session_id = await client.create(task)

        async def released() -> bool:
            rows = await stack.rows("select status, owner from sessions")
            return [tuple(row) for row in rows] == [("completed", None)]

        await until(released)
        await collector.wait_for(lambda spans: any(s.parent_id is None for s in spans))
        await until(lambda: [f"surefoot:hot:{session_id}"] in [w[1:2] for w in redis.commands])
        statements = Counter(map(label, postgres.statements))
        for name in BY_THE_CLOCK:
            statements.pop(name, None)
        commands = Counter(" ".join(w[:2]).partition(session_id)[0] for w in redis.commands)
        commands.pop("PING", None)  # an idle connection is tried before its use, by the clock
        spans = Counter(span.name.split()[0] for span in collector.spans())
    return Cost(statements, commands, spans)


EXPECTED = {
    "shop": Cost(
        statements=Counter(
            {"tools": 1, "create": 1, "claim": 1, "read short journals": 1, "append": 3}
        ),
        redis=Counter(
            {"PUBLISH surefoot:nudge": 1, "PUBLISH surefoot:rest": 1, "SET surefoot:hot:": 1}
        ),
        spans=Counter(
            {
                "invoke_agent": 1,
                "chat": 2,
                "execute_tool": 1,
                "observe": 2,
                "think": 2,
                "act": 1,
                "reflect": 2,
            }
        ),
    ),
    "five_plus_four": Cost(
        statements=Counter(
            {"tools": 1, "create": 1, "claim": 1, "read short journals": 1, "append": 6}
        ),
        redis=Counter(
            {"PUBLISH surefoot:nudge": 1, "PUBLISH surefoot:rest": 1, "SET surefoot:hot:": 1}
        ),
        spans=Counter(
            {
                "invoke_agent": 1,
                "chat": 5,
                "execute_tool": 4,
                "observe": 5,
                "think": 5,
                "act": 4,
                "reflect": 5,
            }
        ),
    ),
}
COMMITS = {"shop": 5, "five_plus_four": 8}


@pytest.mark.alone
@pytest.mark.req("STATE-1", "OBS-1")
@pytest.mark.parametrize("script", ["shop", "five_plus_four"])
async def test_a_session_costs_exactly_this(stacks: Stacks, script: str) -> None:
    cost = await cost_of(stacks, script, SHOP)
    assert cost == EXPECTED[script]
    assert cost.commits == COMMITS[script]


@pytest.mark.parametrize("script", ["shop", "five_plus_four"])
def test_the_documented_counts_are_the_asserted_ones(script: str) -> None:
    cost = EXPECTED[script]
    counts = (
        *(COMMITS[script], cost.statements.total(), cost.redis.total(), cost.spans.total()),
        cost.statements["append"],
    )
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{script}`"))
    assert [int(cell) for cell in re.findall(r"\| (\d+) ", row)] == list(counts)
