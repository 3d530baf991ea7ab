"""Server-sent events from bytes, incrementally: only their data, since that is all models send."""

from typing import Final

_BOM: Final = b"\xef\xbb\xbf"


class EventReader:
    """Feed it chunks cut anywhere; it returns the data of each event that is complete.

    Lines may end in LF, CR or CRLF. Comments, other fields and events without data give nothing.
    Decoding text is left to whoever reads the data, as a whole event never ends inside a character.
    """

    __slots__ = ("_data", "_first", "_line", "_skip_lf")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._skip_lf = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this chunk completes."""
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._line.append(chunk)
            return []
        self._line.append(chunk)
        *lines, rest = b"".join(self._line).split(b"\n")
        self._line = [rest]
        return self._events(lines)

    def close(self) -> list[bytes]:
        """Return the data of an event whose last line breaks were left out."""
        return self.feed(b"\n\n")

    def _events(self, lines: list[bytes]) -> list[bytes]:
        if self._first:
            lines[0] = lines[0].removeprefix(_BOM)
            self._first = False
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                event = b"\n".join(self._data).strip()
                self._data = []
                if event:
                    events.append(event)
        return events
