"""Registration: from the body of a request to an immutable `ToolSpec`, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.toolbox import HttpTemplate, ToolKind, ToolSpec, nearest
from app.tools.approvals import approval_of, approval_problems, described
from app.tools.body import HttpBody, StatusCheckBody, ToolBody
from app.tools.errors import DefinitionError, NotSupportedYetError, Problem
from app.tools.hygiene import clean, too_deep
from app.tools.lint import Lint, lint
from app.tools.names import alias_for, name_problem
from app.tools.schema import prepare
from app.tools.schema_walk import token
from app.tools.template_checks import status_check_problems, template_problems

KINDS: Final = ("http", "mcp", "openapi", "agent", "client")
_MOST_DEPTH: Final = 80


@dataclass(frozen=True, slots=True)
class Definition:
    """A registration that was accepted."""

    spec: ToolSpec
    lint: Lint


def parse(body: Mapping[str, Json], *, version: int = 1, name: str | None = None) -> Definition:
    """Return the tool that a decoded body defines; `name` is that of the path, when there is one.

    Raises:
        DefinitionError: with everything that cannot work.
        NotSupportedYetError: when it asks for something that is not built yet.

    """
    if too_deep(dict(body), _MOST_DEPTH):
        raise DefinitionError([Problem("", f"nested deeper than {_MOST_DEPTH} levels")])
    read = _read(body, name)
    errors = _own_problems(read, name)
    missing = read.not_built()
    if missing is not None and not errors:
        raise NotSupportedYetError(missing)
    prepared = prepare(read.parameters)
    errors.extend(prepared.errors)
    errors.extend(approval_problems(read))
    if not prepared.errors:
        errors.extend(_request_problems(read, prepared.schema["properties"]))
    if errors:
        raise DefinitionError(errors)
    spec = _spec(read, version, prepared.schema)
    return Definition(spec, lint(spec, prepared.warnings, given=read.model_fields_set))


def _request_problems(read: ToolBody, declared: Json) -> Iterator[Problem]:
    known = frozenset(declared) if isinstance(declared, dict) else frozenset[str]()
    if read.http is not None:
        yield from template_problems(read.http, known)
    if read.status_check is not None:
        yield from status_check_problems(read.status_check, known, read.kind)


def _read(body: Mapping[str, Json], name: str | None) -> ToolBody:
    cleaned = clean(dict(body))
    fields = dict(cleaned) if isinstance(cleaned, dict) else {}
    if name is not None:
        fields.setdefault("name", name)
    for optional in ("parameters", "approval"):
        if fields.get(optional, "") is None:
            del fields[optional]
    try:
        return ToolBody.model_validate(fields)
    except ValidationError as error:
        problems = [_problem(dict(e)) for e in error.errors(include_url=False)]
        raise DefinitionError(problems) from None


def _problem(error: Mapping[str, object]) -> Problem:
    """Return pydantic's error at the place where the body has it."""
    loc = error["loc"]
    path = [str(part) for part in loc] if isinstance(loc, tuple) else []
    if path[:1] == ["approval"]:
        path = path[:1]  # the rest names branches of a union, not fields
    message = str(error["msg"])
    if error["type"] == "extra_forbidden":
        close = nearest(path[-1], ToolBody.model_fields, 1)
        message = "unknown field" + (f"; did you mean '{close[0]}'?" if close else "")
    return Problem("".join(f"/{token(part)}" for part in path), message)


def _own_problems(read: ToolBody, name: str | None) -> list[Problem]:
    errors = []
    wrong = name_problem(read.name)
    if wrong is not None:
        errors.append(Problem("/name", wrong))
    if name is not None and read.name != name:
        errors.append(Problem("/name", f"the path names {name!r}; a tool is not renamed"))
    if read.kind == "builtin":
        errors.append(Problem("/kind", "built-in tools are there already"))
    elif read.kind not in KINDS:
        errors.append(Problem("/kind", f"must be one of {', '.join(KINDS)}"))
    elif read.kind == "http" and read.http is None:
        errors.append(Problem("/http", "a tool of kind 'http' needs it"))
    elif read.kind != "http" and read.http is not None:
        errors.append(Problem("/http", f"does not belong to a tool of kind {read.kind!r}"))
    return errors


def _spec(read: ToolBody, version: int, parameters: Mapping[str, Json]) -> ToolSpec:
    approval, approval_when = approval_of(read, parameters)
    return ToolSpec(
        name=read.name,
        version=version,
        kind=ToolKind(read.kind),
        description=read.description,
        parameters=parameters,
        http=None if read.http is None else _template(read.http),
        effect=EffectClass(read.effect),
        timeout_s=read.timeout_s,
        max_attempts=read.max_attempts,
        loop_ignore=tuple(read.loop_ignore),
        polling=read.polling,
        serial_group=read.serial_group,
        depends_on=tuple(read.depends_on),
        sensitive=tuple(read.sensitive),
        max_chars=read.result.max_chars,
        enabled=read.enabled,
        alias=alias_for(read.name),
        approval=approval,
        approval_when=approval_when,
        status_check=None if read.status_check is None else _template(read.status_check),
    )


def _template(http: HttpBody | StatusCheckBody) -> HttpTemplate:
    return HttpTemplate(
        method=http.method,
        url=http.url,
        query=http.query,
        headers=dict(http.headers),
        body=http.body,
    )


def _described(template: HttpTemplate | None) -> Json:
    if template is None:
        return None
    return {
        "method": template.method,
        "url": template.url,
        "query": None if template.query is None else dict(template.query),
        "headers": dict(template.headers),
        "body": template.body,
    }


def describe(spec: ToolSpec) -> dict[str, Json]:
    """Return a tool as the HTTP contract shows it, with the defaults of what is not built yet."""
    return {
        "name": spec.name,
        "version": spec.version,
        "kind": spec.kind.value,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "http": _described(spec.http),
        "effect": spec.effect.value,
        "timeout_s": spec.timeout_s,
        "max_attempts": spec.max_attempts,
        "approval": described(spec),
        "loop_ignore": list(spec.loop_ignore),
        "fallback": None,
        "rules": [],
        "result": {"select": None, "views": {}, "template": None, "max_chars": spec.max_chars},
        "cache_ttl_s": 0,
        "polling": spec.polling,
        "serial_group": spec.serial_group,
        "depends_on": list(spec.depends_on),
        "sensitive": list(spec.sensitive),
        "concurrency": None,
        "per_minute": None,
        "status_check": _described(spec.status_check),
        "enabled": spec.enabled,
        "alias": spec.alias,
    }
