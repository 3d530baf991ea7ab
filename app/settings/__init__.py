"""All knobs: SUREFOOT_ variables over an optional file, read once, validated, frozen.

Only the wiring and the processes read this; every other room is given plain values.
"""

from app.settings.loading import Loaded, SettingsError, StartError, load
from app.settings.model import Settings
from app.settings.showing import masked

__all__ = ["Loaded", "Settings", "SettingsError", "StartError", "load", "masked"]
