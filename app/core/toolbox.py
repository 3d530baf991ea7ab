"""Tools as the core and the edges know them: one immutable definition a version.

Shapes follow the HTTP contract (`POST /v1/tools`); defaults are those of the contract.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.core.canonical import Json
from app.core.events import EffectClass, ToolRef

MAX_CHARS: Final = 2000
"""How much of a result the model reads where its tool does not say."""


class ToolKind(StrEnum):
    """Who carries a tool out."""

    HTTP = "http"
    BUILTIN = "builtin"
    CLIENT = "client"


class ApprovalMode(StrEnum):
    """Whether a person must agree before a call is carried out."""

    NEVER = "never"
    ALWAYS = "always"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class HttpTemplate:
    """How an HTTP tool is called: `{name}` stands for an argument.

    `query` and `body` None mean: send the arguments not used elsewhere, as query for methods
    without a body, as JSON for methods with one.
    """

    method: str
    url: str
    query: Mapping[str, Json] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One version of a tool. `timeout_s` None means the session's `tool_timeout_s`.

    `approval_when` is the expression of the mode `rule`. `status_check` is the request that tells
    whether a call took effect; beside the arguments, `{idempotency_key}` stands for its key.
    """

    name: str
    version: int
    kind: ToolKind
    description: str
    parameters: Mapping[str, Json]
    http: HttpTemplate | None = None
    effect: EffectClass = EffectClass.ONCE
    timeout_s: float | None = None
    max_attempts: int = 3
    loop_ignore: tuple[str, ...] = ()
    polling: bool = False
    serial_group: str | None = None
    depends_on: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    max_chars: int = MAX_CHARS
    enabled: bool = True
    alias: str | None = None
    approval: ApprovalMode = ApprovalMode.NEVER
    approval_when: str | None = None
    status_check: HttpTemplate | None = None

    @property
    def ref(self) -> ToolRef:
        """Return the name and version by which a session pins this tool."""
        return ToolRef(self.name, self.version)

    @property
    def wire_name(self) -> str:
        """Return the name a provider is told, which takes fewer characters than ours may have."""
        return self.alias or self.name


FINISH: Final = "finish"
"""The name of the built-in final answer, which is always offered (LOOP-11)."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the known names most like a wrong one."""
    return tuple(difflib.get_close_matches(name, list(known), n=most, cutoff=0.4))
