"""The string formats that are checked, each in linear time and without foreign grammars."""

import re
from collections.abc import Callable
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urlsplit

from jsonschema import FormatChecker

from app.tools.patterns import PatternError, compiled

FORMATS: Final = FormatChecker(formats=())
"""Formats that are not listed here are annotations: they are told to the model, not checked."""

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?(?:[zZ]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION: Final = re.compile(
    r"P(?:\d+W|(?=[\dT])(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)",
    re.ASCII,
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST_HOST: Final = 253


def _checks(name: str) -> Callable[[Callable[[str], bool]], Callable[[str], bool]]:
    """Register a check for a format; values that are not text always fit."""

    def register(check: Callable[[str], bool]) -> Callable[[str], bool]:
        def checked(value: object) -> bool:
            return not isinstance(value, str) or check(value)

        FORMATS.checks(name, raises=ValueError)(checked)
        return check

    return register


@_checks("date")
def is_date(text: str) -> bool:
    """Return whether this is a full date of RFC 3339."""
    return bool(_DATE.fullmatch(text) and date.fromisoformat(text))


@_checks("time")
def is_time(text: str) -> bool:
    """Return whether this is a time of RFC 3339, with its offset."""
    if not _TIME.fullmatch(text):
        return False
    time.fromisoformat(text[:8])
    return True


@_checks("date-time")
def is_date_time(text: str) -> bool:
    """Return whether this is a date and time of RFC 3339."""
    if not text[10:11] or text[10] not in "tT " or not _TIME.fullmatch(text[11:]):
        return False
    datetime.fromisoformat(f"{text[:10]}T{text[11:19]}")
    return bool(_DATE.fullmatch(text[:10]))


@_checks("duration")
def is_duration(text: str) -> bool:
    """Return whether this is a duration of ISO 8601."""
    return bool(_DURATION.fullmatch(text))


@_checks("email")
def is_email(text: str) -> bool:
    """Return whether this could be an address; only delivery can prove one."""
    name, at, host = text.rpartition("@")
    return bool(name and at and host) and not any(c.isspace() for c in text)


@_checks("hostname")
def is_hostname(text: str) -> bool:
    """Return whether this is a host name of RFC 1123."""
    labels = text.removesuffix(".").split(".")
    return len(text) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in labels)


@_checks("ipv4")
def is_ipv4(text: str) -> bool:
    """Return whether this is an IPv4 address in dotted form."""
    return bool(str(IPv4Address(text)))


@_checks("ipv6")
def is_ipv6(text: str) -> bool:
    """Return whether this is an IPv6 address."""
    return "%" not in text and bool(str(IPv6Address(text)))


@_checks("uri")
def is_uri(text: str) -> bool:
    """Return whether this is a URI with a scheme."""
    return bool(urlsplit(text).scheme) and not any(c.isspace() for c in text)


@_checks("uuid")
def is_uuid(text: str) -> bool:
    """Return whether this is a UUID in its usual form."""
    return bool(_UUID.fullmatch(text))


@_checks("regex")
def is_regex(text: str) -> bool:
    """Return whether this is a pattern of the engine in use."""
    try:
        compiled(text)
    except PatternError:
        return False
    return True
