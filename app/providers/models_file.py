"""The file of models (`SUREFOOT_MODELS_FILE`): JSON, YAML or TOML into configurations."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import yaml

from app.core.canonical import Json
from app.providers.config import (
    DEFAULT_ENCODING,
    DEFAULT_KEY_NAME,
    DEFAULT_WINDOW,
    ModelConfig,
    Prices,
    Profile,
)
from app.providers.encodings import ENCODINGS

_KEYS: Final = frozenset(
    {"name", "protocol", "base_url", "api_key", "api_key_env", "context_window", "encoding"}
    | {"prices", "profile", "parameters", "fallbacks"}
)
_PRICES: Final = frozenset({"input", "cached", "output"})
_PROFILE: Final = frozenset({"content_null", "replay_reasoning", "text_calls", "think_open"})
_OWN_FIELDS: Final = frozenset({"model", "messages", "stream", "tools"})
_SMALLEST_WINDOW: Final = 1024

_T = TypeVar("_T")


class ModelsFileError(ValueError):
    """The file cannot be used; the message says where and why, and holds no key."""


def load_models(path: Path, environment: Mapping[str, str]) -> tuple[ModelConfig, ...]:
    """Return the models that a file describes, in its order.

    Raises:
        ModelsFileError: when it cannot be read or says something that cannot be done.

    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ModelsFileError(f"{path}: cannot be read: {problem}") from None
    document = _parsed(text, path)
    entries = document.get("models") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ModelsFileError(f'{path}: wants {{"models": [...]}} with at least one model')
    models = tuple(
        _model(_Entry(entry, f"{path}: models[{at}]"), environment)
        for at, entry in enumerate(entries)
    )
    names = [model.name for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ModelsFileError(f"{path}: a model name used twice: {', '.join(twice)}")
    return models


def _parsed(text: str, path: Path) -> Json:
    readers: dict[str, Callable[[str], Json]] = {".json": json.loads, ".toml": tomllib.loads}
    read = readers.get(path.suffix.lower(), yaml.safe_load)
    try:
        return read(text)
    except (ValueError, yaml.YAMLError) as problem:
        where = getattr(problem, "problem_mark", None)
        # The text around a YAML error is left out: it may hold a key.
        said = f"line {where.line + 1}" if where is not None else str(problem)
        raise ModelsFileError(f"{path}: is not valid: {said}") from None


class _Entry:
    """One object of the file, read field by field."""

    def __init__(self, value: Json, where: str) -> None:
        if not isinstance(value, dict):
            raise ModelsFileError(f"{where}: wants an object")
        self._value: dict[str, Json] = value
        self.where = where

    def only(self, known: frozenset[str]) -> None:
        """Refuse fields that mean nothing here."""
        unknown = sorted(str(key) for key in self._value if key not in known)
        if unknown:
            fields = ", ".join(unknown)
            raise ModelsFileError(
                f"{self.where}: unknown field {fields}; there are {sorted(known)}"
            )

    def get(self, name: str, kind: type[_T]) -> _T | None:
        """Return a field's value of this type, or None where it is left out."""
        value = self._value.get(name)
        if value is None:
            return None
        # True is an int to Python, and an int is a float to everybody who writes a price.
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelsFileError(f"{self.where}.{name}: wants {kind.__name__}")
        return value

    def part(self, name: str, known: frozenset[str]) -> "_Entry":
        """Return an object inside this one, empty where it is left out."""
        part = _Entry(self._value.get(name) or {}, f"{self.where}.{name}")
        part.only(known)
        return part

    def fail(self, name: str, why: str) -> ModelsFileError:
        """Return the error about a field."""
        return ModelsFileError(f"{self.where}.{name}: {why}")


def _model(entry: _Entry, environment: Mapping[str, str]) -> ModelConfig:
    entry.only(_KEYS)
    _refuse_unbuilt(entry)
    api_key, key_name = _key(entry, environment)
    window = entry.get("context_window", int)
    if window is not None and window < _SMALLEST_WINDOW:
        raise entry.fail("context_window", f"wants at least {_SMALLEST_WINDOW} tokens")
    encoding = entry.get("encoding", str)
    if encoding is not None and encoding not in ENCODINGS:
        raise entry.fail("encoding", f"{encoding!r} is unknown; there are {sorted(ENCODINGS)}")
    return ModelConfig(
        name=_required(entry, "name"),
        base_url=_base_url(entry),
        api_key=api_key,
        key_name=key_name,
        context_window=window or DEFAULT_WINDOW,
        encoding=encoding or DEFAULT_ENCODING,
        prices=_prices(entry.part("prices", _PRICES)),
        profile=_profile(entry.part("profile", _PROFILE)),
        parameters=_parameters(entry),
    )


def _refuse_unbuilt(entry: _Entry) -> None:
    protocol = entry.get("protocol", str) or "openai"
    if protocol == "anthropic":
        raise entry.fail("protocol", "'anthropic' is not supported yet; use 'openai'")
    if protocol != "openai":
        raise entry.fail("protocol", f"{protocol!r} is unknown; use 'openai'")
    if entry.get("fallbacks", list):
        raise entry.fail("fallbacks", "is not supported yet")


def _required(entry: _Entry, name: str) -> str:
    value = (entry.get(name, str) or "").strip()
    if not value:
        raise entry.fail(name, "is missing")
    return value


def _base_url(entry: _Entry) -> str:
    url = _required(entry, "base_url")
    if not url.startswith(("http://", "https://")):
        raise entry.fail("base_url", "wants a URL that begins with http:// or https://")
    return url


def _key(entry: _Entry, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the key, and the name under which an operator finds it."""
    given, variable = entry.get("api_key", str), entry.get("api_key_env", str)
    if given is not None and variable is not None:
        raise entry.fail("api_key", "stands beside api_key_env; give one of them")
    if variable is None:
        return given or "", f"api_key of {entry.where}" if given else DEFAULT_KEY_NAME
    if not environment.get(variable):
        raise entry.fail("api_key_env", f"the environment variable {variable} is not set")
    return environment[variable], variable


def _prices(entry: _Entry) -> Prices:
    given = {name: entry.get(name, float) for name in sorted(_PRICES)}
    for name, price in given.items():
        if price is not None and not 0 <= price < float("inf"):
            raise entry.fail(name, "wants a price per million tokens, 0 or more")
    return Prices(**given)


def _profile(entry: _Entry) -> Profile:
    given = {name: entry.get(name, bool) for name in sorted(_PROFILE)}
    return Profile(**{name: flag for name, flag in given.items() if flag is not None})


def _parameters(entry: _Entry) -> dict[str, Json]:
    given: dict[str, Json] = entry.get("parameters", dict) or {}
    for name in given:
        if name in _OWN_FIELDS:
            raise entry.fail(f"parameters.{name}", "is set by the service")
    return given
