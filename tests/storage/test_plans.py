"""How each statement is planned on an empty database, and on a small one.

A server plans a statement once for each connection, so the plans of its first minute are made while
the tables are small; those must not walk over tables that grow.
"""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy.dialects import postgresql

import app.storage
from app.storage.engine import Engine
from app.storage.journal import APPEND
from app.storage.schema import METADATA
from app.storage.sql import DELIVER_TO_WEBHOOKS

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
SMALL = {"workers"}
"""Tables with a row for each process."""
PARTIAL = {
    "sessions_owner",
    "sessions_suspect",
    "sessions_wake",
    "deliveries_due",
    "schedules_next",
}
"""Indexes of rows that wait for something: to read all of one is to read what is asked for."""
PARTS = {DELIVER_TO_WEBHOOKS}
WALKS = {"Seq Scan", "Bitmap Heap Scan", "Hash Join", "Merge Join"}

Plan = Mapping[str, object]


def statements() -> dict[str, str]:
    """Return the statements of the storage room, by name."""
    found = {}
    for module in pkgutil.iter_modules(app.storage.__path__):
        for name, value in vars(importlib.import_module(f"app.storage.{module.name}")).items():
            is_constant = name.isupper() and isinstance(value, str)
            if is_constant and re.match(r"\s*(with|select|insert|update|delete)\b", value):
                found[f"{module.name}.{name}"] = value
    return {name: text for name, text in found.items() if text not in PARTS}


STATEMENTS = statements()


async def planned(engine: Engine, sql: str) -> list[Plan]:
    """Return the nodes of a statement's generic plan."""
    nulls = ["null"] * max(map(int, re.findall(r"\$(\d+)", sql)), default=0)
    call = f"execute tried({', '.join(nulls)})" if nulls else "execute tried"
    async with engine.pool.acquire() as connection:
        await connection.execute(f"prepare tried as {sql}")
        told = await connection.fetchval(f"explain (format json) {call}")
        await connection.execute("deallocate tried")
    return list(_nodes(json.loads(str(told))[0]["Plan"]))


def _nodes(plan: dict[str, object], limited: bool = False) -> Iterator[Plan]:  # noqa: FBT001,FBT002
    yield {**plan, "limited": limited}
    parts = plan.get("Plans", [])
    assert isinstance(parts, list)
    for part in parts:
        yield from _nodes(part, plan["Node Type"] == "Limit")


def walks(node: Plan) -> bool:
    """Say whether a node reads a growing table, or an index of all its rows, from end to end."""
    if node.get("Relation Name") in SMALL:
        return False
    whole = str(node["Node Type"]).startswith("Index") and "Index Cond" not in node
    return node["Node Type"] in WALKS or (
        whole and not node["limited"] and node["Index Name"] not in PARTIAL
    )


_VALUES = {
    "text": "'x' || n",
    "text[]": "array['x' || n]",
    "boolean": "n % 2 = 0",
    "bytea": "int4send(n)",
    "timestamp with time zone": "now()",
    "jsonb": "'{}'::jsonb",
}


async def grown(engine: Engine) -> None:
    """Put 500 rows into each table, and let the server count them."""
    for table in METADATA.sorted_tables:
        kinds = [column.type.compile(DIALECT).lower() for column in table.columns]
        values = ", ".join(_VALUES.get(kind, "n") for kind in kinds)
        await engine.run(f"insert into {table} select {values} from generate_series(1, 500) n")
    await engine.run("analyze")


@pytest.mark.parametrize("size", ["empty", "small"])
async def test_no_statement_walks_over_a_table_that_grows(engine: Engine, size: str) -> None:
    if size == "small":
        await grown(engine)
    walking = {
        name: nodes
        for name, sql in STATEMENTS.items()
        if (nodes := [node for node in await planned(engine, sql) if walks(node)])
    }
    assert walking == {}


async def test_an_append_finds_its_session_by_id(engine: Engine) -> None:
    """Not among all that have an owner."""
    used = {node["Index Name"] for node in await planned(engine, APPEND) if "Index Name" in node}
    assert used == {"sessions_pkey", "webhooks_list"}


async def test_the_search_finds_statements() -> None:
    assert {"journal.APPEND", "workers.CLAIM", "sessions.CREATE"} <= set(STATEMENTS)
