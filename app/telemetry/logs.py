"""Log lines: one JSON object a line on stderr, for our own events and for every library's.

Both ways end in `Lines`, so that nothing gets out without its masks. Content is never logged.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog
from typing_extensions import override

from app.telemetry.masking import Masker, mask_fields

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_CHATTY: Final = (
    "aiohttp",
    "asyncpg",
    "h11",
    "hpack",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "urllib3",
)
"""Libraries whose debug lines hold headers or statements: never below WARNING."""
_SERVERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


class Stream(Protocol):
    """Where bytes of lines go."""

    def write(self, data: bytes, /) -> object:
        """Write them."""

    def flush(self) -> object:
        """Hand them to the system."""


class Logger(Protocol):
    """What the observer needs of a logger; a level that is off costs a call and nothing else."""

    def debug(self, event: str, **fields: object) -> object:
        """Write a line for whoever looks for a fault."""

    def info(self, event: str, **fields: object) -> object:
        """Write a line about the usual course."""

    def warning(self, event: str, **fields: object) -> object:
        """Write a line about something that somebody may want to look at."""

    def error(self, event: str, **fields: object) -> object:
        """Write a line about something that somebody has to look at."""

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of this level are written."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How lines are written. `secrets` are values that never appear, `now_us` is the clock."""

    now_us: Callable[[], int]
    level: str = "info"
    format: str = "json"
    secrets: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Return the level as the standard library counts it."""
        return _LEVELS[self.level.lower()]


class Stamp:
    """Formats times as RFC 3339; the part down to the second is kept for the lines that follow."""

    def __init__(self) -> None:
        """Start without a second."""
        self._second = -1
        self._text = ""

    def __call__(self, at_us: int) -> str:
        """Return the text of a time."""
        second, micro = divmod(at_us, 1_000_000)
        if second != self._second:
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._text}.{micro:06d}Z"


class Lines:
    """Renders the fields of a line, masks it, writes it."""

    def __init__(self, config: LogConfig, stream: Stream) -> None:
        """Write to a binary stream."""
        self._now_us = config.now_us
        self._stream = stream
        self._masker = Masker(config.secrets)
        self._stamp = Stamp()
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode
        self._console = None
        if config.format == "console":
            self._console = structlog.dev.ConsoleRenderer(colors=False)

    def write(self, level: str, fields: Mapping[str, object]) -> None:
        """Write one line; `at_us` among the fields is its time, else it is now."""
        at_us = fields.get("at_us")
        stamp = self._stamp(at_us if isinstance(at_us, int) else self._now_us())
        line: dict[str, object] = {"ts": stamp, "level": level, "event": fields.get("event")}
        line.update(mask_fields(fields))
        line.pop("at_us", None)
        self._stream.write(self._masker.line(self._render(line)) + b"\n")
        self._stream.flush()

    def _render(self, line: dict[str, object]) -> bytes:
        if self._console is not None:
            text = self._console(None, str(line["level"]), {**line, "timestamp": line.pop("ts")})
            return str(text).encode("utf-8", "backslashreplace")
        try:
            return self._encode(line)
        except (UnicodeEncodeError, TypeError, ValueError):
            return json.dumps(line, default=repr).encode()  # lone surrogates, odd keys


class _Sink:
    """What structlog calls its logger: the end of the line's way."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __getattr__(self, level: str) -> Callable[..., None]:
        def write(fields: Mapping[str, object]) -> None:
            self._lines.write(level, fields)

        setattr(self, level, write)
        return write


def _as_argument(
    _logger: object, _level: str, fields: MutableMapping[str, object]
) -> tuple[tuple[MutableMapping[str, object]], dict[str, object]]:
    return (fields,), {}


def make_logger(config: LogConfig, stream: Stream) -> Logger:
    """Return a structlog logger whose lines go to this stream."""
    logger: Logger = structlog.wrap_logger(
        _Sink(Lines(config, stream)),
        processors=[_as_argument],
        wrapper_class=structlog.make_filtering_bound_logger(config.number),
    )
    return logger.bind()  # type: ignore[attr-defined, no-any-return] # bound once, not at each line


class StdlibHandler(logging.Handler):
    """Writes the lines of libraries in our form and with our masks."""

    def __init__(self, lines: Lines) -> None:
        """Write through `Lines`."""
        super().__init__()
        self._lines = lines
        self._traceback = logging.Formatter().formatException

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            fields: dict[str, object] = {
                "event": record.getMessage(),
                "logger": record.name,
                "at_us": int(record.created * 1_000_000),
            }
            if record.exc_info:
                fields["exception"] = self._traceback(record.exc_info)
            self._lines.write(record.levelname.lower(), fields)
        except (TypeError, ValueError, OSError):
            self.handleError(record)


def route_stdlib(config: LogConfig, stream: Stream) -> None:
    """Make everything that uses `logging` (uvicorn, asyncio, warnings) write through us."""
    root = logging.getLogger()
    root.handlers[:] = [StdlibHandler(Lines(config, stream))]
    root.setLevel(config.number)
    for name in _SERVERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, config.number))
    logging.captureWarnings(capture=True)
