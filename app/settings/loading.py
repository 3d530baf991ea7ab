"""Reading the settings: the environment over an optional file, and every fault in plain words."""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import ValidationError

from app.settings.model import PREFIX, Settings

_CONFIG: Final = f"{PREFIX}CONFIG"
_OF_THE_CLIENT: Final = frozenset({f"{PREFIX}URL", f"{PREFIX}API_KEY", _CONFIG})
"""Variables of the command line's HTTP client, and the one that names the file."""

Source = Literal["default", "environment", "file"]


class SettingsError(Exception):
    """The settings cannot be used; `faults` says of each what is wrong, never its value."""

    def __init__(self, faults: list[str]) -> None:
        """Keep the faults."""
        super().__init__("The settings cannot be used:\n" + "\n".join(f"- {f}" for f in faults))
        self.faults = tuple(faults)


class StartError(SettingsError):
    """What was found does not let this process start; `todo` says what does."""

    def __init__(self, happened: str, todo: str) -> None:
        """Keep both: a line each."""
        Exception.__init__(self, happened)
        self.faults = (happened,)
        self.todo = todo


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each comes from, and what looks like a mistake but is none that stops."""

    settings: Settings
    sources: Mapping[str, Source]
    warnings: tuple[str, ...]

    def serve_faults(self) -> list[str]:
        """Return what `serve` needs beyond `dev`, which makes its own servers and keys."""
        needed = {
            "DATABASE_URL": self.settings.database_url,
            "REDIS_URL": self.settings.redis_url,
            "ENCRYPTION_KEYS": self.settings.encryption_keys,
        }
        return [f"`serve` needs {PREFIX}{name}" for name, value in needed.items() if value is None]


def load() -> Loaded:
    """Read the file and the environment.

    Raises:
        SettingsError: with a line for each setting that is wrong.

    """
    path = os.environ.get(_CONFIG)
    file = {} if not path else _read(Path(path))
    unknown = [f"{key}: there is no such setting{_near(key)}" for key in file if not _is_known(key)]
    if unknown:
        raise SettingsError(unknown)
    try:
        settings = Settings(**file)  # type: ignore[arg-type] # validated by the model itself
    except ValidationError as error:
        raise SettingsError(_lines(error)) from None
    return Loaded(settings, _sources(file), _warnings())


def _given() -> set[str]:
    return {name.upper() for name, value in os.environ.items() if value}


def _sources(file: Mapping[str, object]) -> dict[str, Source]:
    given = _given()
    found: dict[str, Source] = {}
    for name in Settings.model_fields:
        in_file: Source = "file" if name in file else "default"
        found[name] = "environment" if f"{PREFIX}{name.upper()}" in given else in_file
    return found


def _warnings() -> tuple[str, ...]:
    names = sorted(name for name in _given() - _OF_THE_CLIENT if name.startswith(PREFIX))
    bare = ((name, name.removeprefix(PREFIX).lower()) for name in names)
    return tuple(
        f"{name}: there is no such setting{_near(own, PREFIX)}"
        for name, own in bare
        if not _is_known(own)
    )


def _is_known(name: str) -> bool:
    return name in Settings.model_fields


def _near(name: str, prefix: str = "") -> str:
    found = difflib.get_close_matches(name, list(Settings.model_fields), n=1)
    if not found:
        return ""
    meant = f"{prefix}{found[0].upper()}" if prefix else found[0]
    return f"; is {meant} meant?"


def _read(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
        match path.suffix.lower():
            case ".toml":
                found: object = tomllib.loads(text)
            case ".yaml" | ".yml":
                found = yaml.safe_load(text)
            case ".json":
                found = json.loads(text)
            case suffix:
                raise SettingsError([f"{_CONFIG}: {suffix or path} is not .toml, .yaml or .json"])
    except OSError as error:
        raise SettingsError([f"{_CONFIG}: {path} cannot be read ({error.strerror})"]) from None
    except (ValueError, yaml.YAMLError):
        raise SettingsError([f"{_CONFIG}: {path} is not well-formed"]) from None
    if not isinstance(found, dict):
        raise SettingsError([f"{_CONFIG}: {path} must hold names and values"])
    return {str(key).lower(): value for key, value in found.items()}


def _lines(error: ValidationError) -> list[str]:
    """Return a line a fault, without the value, which may be a secret."""
    lines: list[str] = []
    for fault in error.errors(include_input=False, include_url=False):
        text = fault["msg"].removeprefix("Value error, ")
        name = str(fault["loc"][0]).upper() if fault["loc"] else ""
        if not name:
            lines.extend(text.splitlines())
        else:
            lines.append(f"{PREFIX}{name.removeprefix(PREFIX)}: {text}")
    return lines
