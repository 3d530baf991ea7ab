"""Tools: immutable versions, and for each name which one is current."""

from dataclasses import replace
from typing import Final

import msgspec

from app.core.events import ToolRef
from app.core.toolbox import ApprovalMode, ToolKind, ToolSpec
from app.storage.engine import Engine
from app.storage.sql import JOURNAL_V

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
insert into tools (tenant, name, version, spec, created_at, min_version, full_spec)
values ($1, $2, $3, $4, now(), $5, $6)
"""

# What a release before the tool's own may know of it stands in `spec`.
_SPEC: Final = f"""
case when t.min_version <= {JOURNAL_V} then coalesce(t.full_spec, t.spec) else t.spec end as spec
"""
_CURRENT: Final = f"""
select {_SPEC} from tool_heads h join tools t
    on t.tenant = h.tenant and t.name = h.name and t.version = h.version
where h.tenant = $1 and not h.deleted order by h.name
"""  # noqa: S608 - made of constants of this room
_VERSION: Final = f"""
select {_SPEC} from tools t where t.tenant = $1 and t.name = $2 and t.version = $3
"""  # noqa: S608 - made of constants of this room
_DELETE: Final = """
update tool_heads set deleted = true where tenant = $1 and name = $2 and not deleted
"""


def encode_spec(spec: ToolSpec) -> str:
    """Return a tool's definition as JSON."""
    return _ENCODER.encode(spec).decode()


def decode_spec(text: str) -> ToolSpec:
    """Return the definition; fields that a newer release added are passed over."""
    return _DECODER.decode(text)


def min_version(spec: ToolSpec) -> int:
    """Return the first release (as in `JOURNAL_V`) that carries this tool out as it says."""
    asks = spec.approval is not ApprovalMode.NEVER
    return 2 if asks or spec.kind is ToolKind.CLIENT else 1


def for_older(spec: ToolSpec) -> ToolSpec:
    """Return what older releases are shown instead: a disabled tool, of a kind that they know."""
    kind = ToolKind.HTTP if spec.kind is ToolKind.CLIENT else spec.kind
    return replace(spec, kind=kind, enabled=False)


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
            needs, full = min_version(saved), encode_spec(saved)
            old, new = (full, None) if needs == 1 else (encode_spec(for_older(saved)), full)
            await connection.execute(_ADD, tenant, spec.name, version, old, needs, new)
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
