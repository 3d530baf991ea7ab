"""The arguments of a call: read from the model's text, shaped, validated (TOOL-2).

Text that is not one whole JSON object is never repaired: a call cut off half-way must not run with
half its arguments. Long arguments are read in a thread, so that no call stalls the others.
"""

import asyncio
import functools
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from referencing.exceptions import Unresolvable

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ApprovalMode, ToolSpec
from app.runtime.ports.tools import Checked
from app.tools.approvals import MARKS, MONEY, needs_approval
from app.tools.explain import explain
from app.tools.hygiene import UnfitJsonError, clean_text, read_json
from app.tools.patterns import PatternError
from app.tools.schema_walk import subschemas
from app.tools.shaping import shape
from app.tools.validator import Validator, validator_for

MOST_CHARS: Final = 1_000_000
_IN_THREAD: Final = 16_384
_MANY_NODES: Final = 500
_MOST_WORK: Final = 50_000_000
_CACHED: Final = 2048
_FENCED: Final = re.compile(r"```[a-zA-Z0-9_-]*\s*\n?(.*?)\n?\s*```", re.DOTALL)
_EMPTY: Final = "{}"


class _Compiled:
    """A schema and its validator; `nodes` is how many schemas it is made of."""

    __slots__ = ("nodes", "schema", "validator")

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema
        self.validator: Validator = validator_for(schema)
        self.nodes = sum(1 for _ in subschemas(dict(schema), ""))


class Arguments:
    """Reads arguments (an `ArgumentReader`); keeps the validators of the tools it has seen."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[tuple[str, int, str], _Compiled] = OrderedDict()
        self._seen: OrderedDict[int, _Compiled] = OrderedDict()

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        """Return the arguments of a call, or why it cannot run."""
        if len(raw) > MOST_CHARS:
            message = f"The arguments have {len(raw):,} characters; the most is {MOST_CHARS:,}."
            return Checked(None, _invalid(message), _EMPTY)
        compiled = self._of(spec)
        if len(raw) > _IN_THREAD or compiled.nodes > _MANY_NODES:
            return await asyncio.to_thread(_judged, spec, compiled, raw)
        return _judged(spec, compiled, raw)

    def _of(self, spec: ToolSpec) -> _Compiled:
        """Return the validator of a version; two tenants may have the same name and number."""
        known = self._seen.get(id(spec.parameters))
        if known is not None and known.schema is spec.parameters:
            return known
        key = (spec.name, spec.version, json.dumps(spec.parameters, sort_keys=True))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = _Compiled(spec.parameters)
            self._compiled[key] = compiled
            if len(self._compiled) > _CACHED:
                self._compiled.popitem(last=False)
        if compiled.schema is spec.parameters:
            # Only then does the entry keep the object alive, and with it the meaning of its id.
            self._seen[id(spec.parameters)] = compiled
            if len(self._seen) > _CACHED:
                self._seen.popitem(last=False)
        return compiled


def _judged(spec: ToolSpec, compiled: _Compiled, raw: str) -> Checked:
    """Return the arguments, and whether a person must agree to them."""
    checked = _check(compiled, raw)
    if checked.arguments is None or spec.approval is ApprovalMode.NEVER:
        return checked
    return replace(checked, needs_approval=needs_approval(spec, checked.arguments))


def _check(compiled: _Compiled, raw: str) -> Checked:
    try:
        value, replay = _read(raw)
    except json.JSONDecodeError as error:
        message = (
            f"The arguments are not valid JSON: {error.msg.removesuffix(' at')} at character "
            f"{error.pos + 1} of {len(raw)}. Send one complete JSON object."
        )
        return _unreadable(message)
    except UnfitJsonError as error:
        return _unreadable(f"The arguments cannot be taken: {error}.")
    if not isinstance(value, dict):
        message = f"The arguments are {_kind(value)}; expected a JSON object of parameters."
        return Checked(None, _invalid(message), _EMPTY)
    if compiled.nodes * len(raw) > _MOST_WORK:
        message = f"The arguments have {len(raw):,} characters, too many for so large a schema."
        return Checked(None, _invalid(message), replay)
    return _fitted(compiled, value, replay)


def _fitted(compiled: _Compiled, value: dict[str, Json], replay: str | None) -> Checked:
    """Return the arguments shaped and valid, or why they are not."""
    shaped = shape(value, compiled.schema)
    try:
        problem = explain(compiled.validator.iter_errors(shaped))
    except (Unresolvable, PatternError):  # stored by other means than a registration
        fault = Fault.of(FaultKind.INTERNAL, "The tool's schema cannot be used.", sent=False)
        return Checked(None, fault, replay)
    if isinstance(shaped, dict) and problem is None:
        return Checked(shaped, None, replay)
    said, faults = problem or ("The arguments are not an object.", ())
    return Checked(None, _invalid(said), replay, problems=faults)


def _read(raw: str) -> tuple[Json, str | None]:
    """Return the value that a text means, and the text to repeat where it is not the same."""
    text = clean_text(raw).strip()
    fenced = _FENCED.fullmatch(text)
    inner = fenced[1].strip() if fenced else text
    value, changed = read_json(inner, strict=True) if inner else (None, True)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value, changed = read_json(value, strict=True)[0], True  # encoded once too often
    if value is None:
        return {}, _EMPTY
    if fenced or changed or "\0" in raw or text != raw.strip():
        return value, json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value, None


def _invalid(message: str) -> Fault:
    return Fault.of(FaultKind.INVALID_ARGS, message, sent=False)


def _unreadable(message: str) -> Checked:
    return Checked(None, Fault.of(FaultKind.UNREADABLE_CALL, message, sent=False), _EMPTY)


def _kind(value: Json) -> str:
    match value:
        case bool():
            return "a boolean"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return "a number"


@functools.lru_cache(maxsize=_CACHED)
def _told(text: str) -> dict[str, Json]:
    schema: Json = json.loads(text)
    told = _fit_for_endpoints(schema)
    return told if isinstance(told, dict) else {}


def provider_schema(spec: ToolSpec) -> dict[str, Json]:
    """Return the parameters as a model endpoint is told them. Not to be changed by the caller.

    References are inlined at registration; what is left to take out is what strict endpoints
    refuse: `"default": null`, and the marks that are for the service alone.
    """
    return _told(json.dumps(spec.parameters))


def _fit_for_endpoints(schema: Json) -> Json:
    if isinstance(schema, dict):
        for _, node in subschemas(schema, ""):
            if node.get("default", "") is None:
                del node["default"]
            for mark in MARKS & node.keys():
                del node[mark]
            if node.get("format") == MONEY:
                del node["format"]
    return schema
