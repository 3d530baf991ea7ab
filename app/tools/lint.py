"""What a registration could do better (TOOL-5). Warnings never refuse it."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.toolbox import HttpTemplate, ToolSpec
from app.tools.approvals import lint_approval
from app.tools.placeholders import names
from app.tools.status import KEY
from app.tools.template_checks import used_names

_COST: Final = 10
_SHORT_DESCRIPTION: Final = 20
_MOST_PARAMETERS: Final = 10
_MOST_NESTING: Final = 3
_WHEN: Final = ("when", "use ", "for ", "if ", "用于", "当", "时")
_RETURNS: Final = ("return", "answer", "give", "result", "respond", "返回", "得到")


@dataclass(frozen=True, slots=True)
class Lint:
    """A score from 0 to 100 and what lowered it."""

    score: int
    warnings: tuple[str, ...]


def lint(
    spec: ToolSpec,
    changed: Sequence[str] = (),
    *,
    given: Container[str] = ("effect", "approval"),
) -> Lint:
    """Return what is to be said of a definition.

    `changed` is what normalising altered, `given` are the fields that the registration has.
    """
    found = [*changed, *_of_description(spec.description), *_of_parameters(spec)]
    if "effect" not in given:
        found.append(
            "/effect: not given, so it is 'once': never repeated when its outcome is unknown; "
            "say 'read' or 'idempotent' where that is true"
        )
    if spec.http is not None and spec.http.method == "DELETE" and spec.effect is EffectClass.READ:
        found.append("/effect: 'read' with method DELETE")
    found.extend(lint_approval(spec, given="approval" in given))
    found.extend(_of_status_check(spec))
    return Lint(max(0, 100 - _COST * len(found)), tuple(found))


def _of_description(description: str) -> list[str]:
    text = description.lower()
    if len(text) < _SHORT_DESCRIPTION:
        return ["/description: too short to choose the tool by"]
    found = []
    if not any(word in text for word in _WHEN):
        found.append("/description: does not say when to use the tool")
    if not any(word in text for word in _RETURNS):
        found.append("/description: does not say what the tool returns")
    return found


def _of_parameters(spec: ToolSpec) -> list[str]:
    declared = _properties(spec.parameters)
    bare = [name for name, schema in declared.items() if not _described(schema)]
    found = [f"/parameters/properties/{name}: has no description" for name in bare]
    if len(declared) > _MOST_PARAMETERS:
        found.append(f"/parameters: {len(declared)} parameters; models do better with ≤10")
    if _nesting(spec.parameters) > _MOST_NESTING:
        found.append(f"/parameters: nested more than {_MOST_NESTING} levels deep")
    unknown = [name for name in (*spec.loop_ignore, *spec.sensitive) if name not in declared]
    found.extend(f"/parameters: {name!r} is named elsewhere but not declared" for name in unknown)
    found.extend(_of_path(spec, spec.http, "/parameters", "the URL's path"))
    return found


def _of_path(
    spec: ToolSpec, template: HttpTemplate | None, place: str, where: str
) -> Iterator[str]:
    if template is None:
        return
    declared = _properties(spec.parameters)
    listed = spec.parameters.get("required")
    required = listed if isinstance(listed, list) else []
    for name in names(template.url.partition("?")[0]):
        if name in declared and name not in required and not _has_default(declared[name]):
            yield f"{place}: {name!r} stands in {where} but is not required"


def _of_status_check(spec: ToolSpec) -> Iterator[str]:
    check, place = spec.status_check, "/status_check"
    if check is None:
        return
    if spec.effect is not EffectClass.ONCE:
        yield f"{place}: never asked: calls with effect {spec.effect.value!r} are made again"
    if KEY not in used_names(check.url, check.query, check.headers, check.body):
        yield (
            f"{place}: does not name {{{KEY}}}, so two calls with the same arguments "
            "cannot be told apart"
        )
    if KEY in _properties(spec.parameters):
        yield f"{place}: {{{KEY}}} is the key of the call here, not the parameter of this name"
    else:
        yield from _of_path(spec, check, place, "its path")


def _properties(schema: Json) -> Mapping[str, Json]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def _described(schema: Json) -> bool:
    return isinstance(schema, dict) and bool(str(schema.get("description", "")).strip())


def _has_default(schema: Json) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _nesting(schema: Json) -> int:
    return max((1 + _nesting(inner) for inner in _properties(schema).values()), default=0)
