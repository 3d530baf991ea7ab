"""Reading a session's stream to its end, across cuts.

The journal's sequence number is the id of each event, so a broken stream is taken up where it
broke: nothing is missed and nothing is shown twice.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx2

from app.cli.client import Service, unreachable
from app.cli.outcome import ServiceError, UnreachableError
from app.cli.values import Record, integer, record, text

_PATIENCE: Final = 12
"""Failures in a row before giving up: about 40 s, enough for a restart or a takeover."""

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
_LEAST_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the model's answer as it is written; it is in no journal and has no number."""

    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream broke and will be taken up again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Journaled:
    """An event of the journal."""

    event: Record


Item = Journaled | Delta | Cut


@dataclass(slots=True)
class StreamReader:
    """Where reading stands: `last` is the number of the last event that was read."""

    service: Service
    session_id: str
    last: int = 0
    _failures: int = field(default=0, init=False)
    _resumed: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)

    def items(self) -> Iterator[Item]:
        """Yield what comes, until the service has nothing more to tell.

        Raises:
            UnreachableError: when the stream breaks and cannot be had again for some 40 seconds.
            ServiceError: when the service refuses it.

        """
        while True:
            try:
                nothing_more = yield from self._connection()
            except httpx2.TransportError as error:
                reason = str(error) or type(error).__name__
                self._fail(unreachable(self.service.url, error))
            except ServiceError as error:
                if error.status < _LEAST_SERVER_ERROR:
                    raise
                reason = error.happened
                self._fail(error)
            else:
                if nothing_more or self._ended:
                    return
                reason = "the stream ended before the turn did"
                self._fail(UnreachableError(f"No more came from {self.service.url}: {reason}."))
            yield Cut(reason)
            exponent = min(self._failures - 1, 10)
            self.service.pause(min(_FIRST_PAUSE_S * 2**exponent, _LONGEST_PAUSE_S))

    def _connection(self) -> Generator[Item, None, bool]:
        """Yield what one connection brings; return whether the service said that this is all."""
        path = f"/v1/sessions/{self.session_id}/stream"
        resume_from = str(self.last) if self._resumed else None
        params = {} if self._resumed else {"after": self.last}
        self._resumed = True
        with self.service.events(path, params=params, last_event_id=resume_from) as source:
            if source is None:
                return True
            for sent in source:
                item = self._item(sent)
                if item is not None:
                    self._failures = 0
                    yield item
        return False

    def _item(self, sent: httpx2.ServerSentEvent) -> Item | None:
        try:
            data = record(sent.json())
        except ValueError:
            return None
        if sent.event == "delta":
            return Delta(text(data.get("text")))
        seq = integer(data.get("seq"))
        if seq <= self.last:
            return None
        self.last = seq
        self._ended = sent.event in {"turn.ended", "session.closed"}
        return Journaled(data)

    def _fail(self, error: UnreachableError | ServiceError) -> None:
        self._failures += 1
        if self._failures >= _PATIENCE:
            raise error
