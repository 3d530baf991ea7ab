"""Which calls a person must agree to (TOOL-17): what a registration says, and what it leaves open.

Said nothing, a call that deletes or moves money needs approval. A parameter is marked as money by
`"money": true`, `"x-money": true` or `"format": "money"` in its schema, at any depth.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from app.core.canonical import Json
from app.core.toolbox import ApprovalMode, ToolSpec, nearest
from app.tools.body import ToolBody, WhenBody
from app.tools.errors import Problem
from app.tools.rules import RuleError, compile_rule
from app.tools.schema_walk import subschemas

MARKS: Final = frozenset({"money", "x-money"})
"""Keywords that mark money: told to the service, not to models."""

MONEY: Final = "money"
_PLACE: Final = "/approval"


def is_money(schema: Mapping[str, Json]) -> bool:
    """Return whether a schema marks what it describes as money."""
    return schema.get("format") == MONEY or any(schema.get(mark) is True for mark in MARKS)


def risk(method: str | None, parameters: Mapping[str, Json]) -> str | None:
    """Return why calls need approval where the registration does not say; None: they do not."""
    if method == "DELETE":
        return "the tool deletes"
    marked = next((at for at, node in subschemas(dict(parameters), "") if is_money(node)), None)
    return None if marked is None else f"{marked.removeprefix('/properties/') or '/'!r} is money"


def approval_problems(read: ToolBody) -> Iterator[Problem]:
    """Yield why the rule of a registration cannot be used."""
    if isinstance(read.approval, WhenBody):
        try:
            compile_rule(read.approval.when)
        except RuleError as error:
            yield Problem(f"{_PLACE}/when", f"cannot be used as a condition: {error}")


def approval_of(read: ToolBody, parameters: Mapping[str, Json]) -> tuple[ApprovalMode, str | None]:
    """Return a tool's mode and its rule."""
    match read.approval:
        case WhenBody(when=rule):
            return ApprovalMode.RULE, rule
        case None:
            why = risk(read.http.method if read.http else None, parameters)
            return ApprovalMode.NEVER if why is None else ApprovalMode.ALWAYS, None
        case said:
            return ApprovalMode(said), None


def needs_approval(spec: ToolSpec, arguments: Mapping[str, Json]) -> bool:
    """Return whether a person must agree to this call; a rule that gives no answer means yes."""
    if spec.approval is not ApprovalMode.RULE:
        return spec.approval is ApprovalMode.ALWAYS
    try:
        return compile_rule(spec.approval_when or "").holds({"args": arguments})
    except RuleError:
        return True


def described(spec: ToolSpec) -> Json:
    """Return the field as it is registered."""
    if spec.approval is ApprovalMode.RULE:
        return {"when": spec.approval_when}
    return spec.approval.value


def lint_approval(spec: ToolSpec, *, given: bool) -> Iterator[str]:
    """Yield what a person should know of who agrees to calls."""
    why = risk(spec.http.method if spec.http else None, spec.parameters)
    if why is not None and not given:
        yield f"{_PLACE}: not given, so every call waits for a person's approval: {why}"
    elif why is not None and spec.approval is ApprovalMode.NEVER:
        yield f"{_PLACE}: 'never', though {why}: calls are carried out without asking anyone"
    if spec.approval is ApprovalMode.RULE:
        yield from _unknown_fields(spec)


def _unknown_fields(spec: ToolSpec) -> Iterator[str]:
    listed = spec.parameters.get("properties")
    declared = listed if isinstance(listed, Mapping) else {}
    for variable, name in sorted(compile_rule(spec.approval_when or "").fields):
        if variable == "args" and name not in declared:
            close = nearest(name, declared, 1)
            hint = f"; did you mean 'args.{close[0]}'?" if close else ""
            yield f"{_PLACE}/when: 'args.{name}' is no parameter of this tool{hint}"
