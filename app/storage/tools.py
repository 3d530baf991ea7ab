"""Tools: immutable versions, and for each name which one is current."""

from dataclasses import replace
from typing import Final

import msgspec

from app.core.events import ToolRef
from app.core.toolbox import ToolSpec
from app.storage.engine import Engine

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(ToolSpec, dec_hook=lambda _kind, value: value)

# The head's row is the lock: two changes of one tool get two numbers. A name that was deleted
# may be created again; its numbers go on, since sessions may still hold the old ones.
_CREATE_HEAD: Final = """
insert into tool_heads as h (tenant, name, version, deleted) values ($1, $2, 1, false)
on conflict (tenant, name) do update set version = h.version + 1, deleted = false where h.deleted
returning version
"""
_RAISE_HEAD: Final = """
update tool_heads set version = version + 1 where tenant = $1 and name = $2 and not deleted
returning version
"""
_ADD: Final = """
insert into tools (tenant, name, version, spec, created_at) values ($1, $2, $3, $4, now())
"""
_CURRENT: Final = """
select t.spec from tool_heads h join tools t
    on t.tenant = h.tenant and t.name = h.name and t.version = h.version
where h.tenant = $1 and not h.deleted order by h.name
"""
_VERSION: Final = "select spec from tools where tenant = $1 and name = $2 and version = $3"
_DELETE: Final = """
update tool_heads set deleted = true where tenant = $1 and name = $2 and not deleted
"""


def encode_spec(spec: ToolSpec) -> str:
    """Return a tool's definition as JSON."""
    return _ENCODER.encode(spec).decode()


def decode_spec(text: str) -> ToolSpec:
    """Return the definition; fields that a newer release added are passed over."""
    return _DECODER.decode(text)


class PostgresTools:
    """Tools, in Postgres."""

    def __init__(self, engine: Engine) -> None:
        """Write and read through this pool."""
        self._engine = engine

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        """Store the next version; None when creating a name that exists, or changing none."""
        async with self._engine.transaction() as connection:
            head = _CREATE_HEAD if create else _RAISE_HEAD
            version: int | None = await connection.fetchval(head, tenant, spec.name)
            if version is None:
                return None
            saved = replace(spec, version=version)
            await connection.execute(_ADD, tenant, spec.name, version, encode_spec(saved))
        return saved

    async def current(self, tenant: str) -> list[ToolSpec]:
        """Return the current version of every tool that was not deleted, by name."""
        return [decode_spec(row["spec"]) for row in await self._engine.rows(_CURRENT, tenant)]

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        """Return one version, deleted tools included."""
        row = await self._engine.row(_VERSION, tenant, ref.name, ref.version)
        return decode_spec(row["spec"]) if row else None

    async def delete(self, tenant: str, name: str) -> bool:
        """Withdraw a tool; sessions that pinned it keep their version."""
        return await self._engine.run(_DELETE, tenant, name) == 1
