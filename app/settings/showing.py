"""The settings as `surefoot settings` prints them: with their sources, without their secrets."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.settings.loading import Loaded
from app.settings.model import PREFIX, Settings

_MASK: Final = "********"


def masked(loaded: Loaded) -> dict[str, object]:
    """Return every setting with its value and where it comes from, secrets as asterisks."""
    shown: dict[str, object] = {}
    for name in Settings.model_fields:
        value = getattr(loaded.settings, name)
        shown[f"{PREFIX}{name.upper()}"] = {"value": _shown(value), "source": loaded.sources[name]}
    return shown


def _shown(value: object) -> object:
    match value:
        case SecretStr():
            return _masked_url(value.get_secret_value())
        case Path():
            return str(value)
        case tuple():
            return [str(item) for item in value]
        case _:
            return value


def _masked_url(text: str) -> str:
    """Return a URL without its user and query, or asterisks for anything else."""
    parts = urlsplit(text)
    if not parts.scheme or not parts.hostname:
        return _MASK
    at = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{_MASK}@{at}{parts.path}"
