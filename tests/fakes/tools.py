"""Tools in memory."""

from dataclasses import dataclass, field, replace

from app.core.events import ToolRef
from app.core.toolbox import ToolSpec


@dataclass(slots=True)
class _Tool:
    versions: list[ToolSpec] = field(default_factory=list)
    deleted: bool = True


class MemoryTools:
    """A `ToolStore` on dictionaries."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], _Tool] = {}

    async def save(self, tenant: str, spec: ToolSpec, *, create: bool) -> ToolSpec | None:
        tool = self._tools.setdefault((tenant, spec.name), _Tool())
        if create is not tool.deleted:
            return None
        saved = replace(spec, version=len(tool.versions) + 1)
        tool.versions.append(saved)
        tool.deleted = False
        return saved

    async def current(self, tenant: str) -> list[ToolSpec]:
        tools = sorted(self._tools.items())
        return [t.versions[-1] for (of, _), t in tools if of == tenant and not t.deleted]

    async def version(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        tool = self._tools.get((tenant, ref.name))
        if tool is None or not 1 <= ref.version <= len(tool.versions):
            return None
        return tool.versions[ref.version - 1]

    async def delete(self, tenant: str, name: str) -> bool:
        tool = self._tools.get((tenant, name))
        if tool is None or tool.deleted:
            return False
        tool.deleted = True
        return True
