"""Registration: from the body of a request to an immutable `ToolSpec`, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.core.canonical import Json
from app.core.events import EffectClass
from app.core.toolbox import HttpTemplate, ToolKind, ToolSpec, nearest
from app.tools.body import HttpBody, ToolBody
from app.tools.errors import DefinitionError, NotSupportedYetError, Problem
from app.tools.hygiene import clean, too_deep
from app.tools.lint import Lint, lint
from app.tools.names import alias_for, name_problem
from app.tools.schema import prepare
from app.tools.schema_walk import token
from app.tools.template_checks import template_problems

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
    if read.http is not None and not prepared.errors:
        declared = prepared.schema["properties"]
        known = frozenset(declared) if isinstance(declared, dict) else frozenset[str]()
        errors.extend(template_problems(read.http, known))
    if errors:
        raise DefinitionError(errors)
    spec = _spec(read, version, prepared.schema)
    return Definition(spec, lint(spec, prepared.warnings, effect_given="effect" in body))


def _read(body: Mapping[str, Json], name: str | None) -> ToolBody:
    cleaned = clean(dict(body))
    fields = dict(cleaned) if isinstance(cleaned, dict) else {}
    if name is not None:
        fields.setdefault("name", name)
    if fields.get("parameters", {}) is None:
        del fields["parameters"]
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
    )


def _template(http: HttpBody) -> HttpTemplate:
    return HttpTemplate(
        method=http.method,
        url=http.url,
        query=http.query,
        headers=dict(http.headers),
        body=http.body,
    )


def describe(spec: ToolSpec) -> dict[str, Json]:
    """Return a tool as the HTTP contract shows it, with the defaults of what is not built yet."""
    http = spec.http
    return {
        "name": spec.name,
        "version": spec.version,
        "kind": spec.kind.value,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "http": None
        if http is None
        else {
            "method": http.method,
            "url": http.url,
            "query": None if http.query is None else dict(http.query),
            "headers": dict(http.headers),
            "body": http.body,
        },
        "effect": spec.effect.value,
        "timeout_s": spec.timeout_s,
        "max_attempts": spec.max_attempts,
        "approval": "never",
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
        "status_check": None,
        "enabled": spec.enabled,
        "alias": spec.alias,
    }
