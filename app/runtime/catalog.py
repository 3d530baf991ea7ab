"""The tools a tenant has: built-ins and registered ones, frozen for a turn, found by reference."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from app.core.events import ToolRef
from app.core.toolbox import ToolSpec
from app.runtime.ports.models import Tokens
from app.runtime.ports.process import Clock
from app.runtime.ports.tools import ToolStore

_K = TypeVar("_K")
_V = TypeVar("_V")
_FRESH_S: Final = 0.25
_CACHE: Final = 4096


class UnknownToolError(Exception):
    """A session names a tool that does not exist."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        """Keep the name and those that exist."""
        super().__init__(f"There is no tool named {name!r}.")
        self.name = name
        self.known = tuple(known)


@dataclass(frozen=True, slots=True)
class Frozen:
    """The tools of one turn, by name order, and what their definitions cost in tokens."""

    specs: tuple[ToolSpec, ...]
    tokens: int

    @property
    def refs(self) -> tuple[ToolRef, ...]:
        """Return the pinned versions."""
        return tuple(spec.ref for spec in self.specs)


class Catalog:
    """Tools by name and version. Versions are immutable, so they are kept; heads are re-read."""

    def __init__(
        self, *, store: ToolStore, builtins: Sequence[ToolSpec], tokens: Tokens, clock: Clock
    ) -> None:
        """Start with the built-in tools."""
        self._store = store
        self._builtins = {spec.name: spec for spec in builtins}
        self._tokens = tokens
        self._clock = clock
        self._current: dict[str, tuple[float, dict[str, ToolSpec]]] = {}
        self._versions: dict[tuple[str, ToolRef], ToolSpec] = {}
        self._sizes: dict[tuple[str, ToolRef, str], int] = {}

    async def current(self, tenant: str, *, fresh: bool = False) -> dict[str, ToolSpec]:
        """Return every tool by name; at most a quarter of a second old, or read now."""
        now = self._clock.boot_s()
        kept = self._current.get(tenant)
        if kept is not None and not fresh and now - kept[0] < _FRESH_S:
            return kept[1]
        stored = {spec.name: spec for spec in await self._store.current(tenant)}
        tools = {**self._builtins, **stored}
        self._current[tenant] = (now, tools)
        return tools

    def forget(self, tenant: str) -> None:
        """Read the heads anew next time: a tool was changed here."""
        self._current.pop(tenant, None)

    async def freeze(
        self,
        tenant: str,
        names: Sequence[str] | None,
        encoding: str,
        *,
        lenient: bool = False,
    ) -> Frozen:
        """Return the tools of a turn: those named, or all that are enabled.

        A later turn (`lenient`) goes on without a named tool that was removed meanwhile.

        Raises:
            UnknownToolError: when a name does not exist or is disabled.

        """
        tools = await self.current(tenant)
        if names is not None and any(name not in tools for name in names):
            tools = await self.current(tenant, fresh=True)
        enabled = {name: spec for name, spec in tools.items() if spec.enabled}
        for name in names or ():
            if name not in enabled and not lenient:
                raise UnknownToolError(name, enabled)
        wanted = enabled if names is None else [name for name in names if name in enabled]
        chosen = sorted(dict.fromkeys(wanted))
        specs = tuple(enabled[name] for name in chosen)
        tokens = 0
        for spec in specs:
            tokens += await self._size(tenant, spec, encoding)
        return Frozen(specs, tokens)

    async def _size(self, tenant: str, spec: ToolSpec, encoding: str) -> int:
        key = (tenant, spec.ref, encoding)
        size = self._sizes.get(key)
        if size is None:
            text = json.dumps([spec.wire_name, spec.description, spec.parameters])
            size = await self._tokens.count(text, encoding)
            _keep(self._sizes, key, size)
        return size

    async def spec(self, tenant: str, ref: ToolRef) -> ToolSpec | None:
        """Return one version of a tool."""
        builtin = self._builtins.get(ref.name)
        if builtin is not None and builtin.version == ref.version:
            return builtin
        key = (tenant, ref)
        found = self._versions.get(key)
        if found is None:
            found = await self._store.version(tenant, ref)
            if found is not None:
                _keep(self._versions, key, found)
        return found


def _keep(cache: dict[_K, _V], key: _K, value: _V) -> None:
    if len(cache) >= _CACHE:
        cache.clear()
    cache[key] = value
