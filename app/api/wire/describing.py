"""The parameters that several operations share, as the document has them."""

from app.api.wire.params import DEFAULT_LIMIT, MOST_LIMIT
from app.api.wire.routing import Document
from app.core.lifecycle import Status
from app.runtime.side.webhook_records import DeliveryStatus


def _parameter(where: str, name: str, schema: Document, text: str) -> Document:
    required = where == "path"
    return {
        "in": where,
        "name": name,
        "required": required,
        "schema": schema,
        "description": text,
    }


def query(name: str, schema: Document, text: str) -> Document:
    """Return a query parameter."""
    return _parameter("query", name, schema, text)


def header(name: str, schema: Document, text: str) -> Document:
    """Return a header."""
    return _parameter("header", name, schema, text)


_LIMIT: Document = {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT}
_KEY: Document = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^(\"[ !#-\[\]-~]+\"|[!#-+\--:<-\[\]-~]+)$",
}

SESSION_ID = _parameter("path", "id", {"type": "string"}, "The session's id.")
APPROVAL_ID = _parameter("path", "id", {"type": "string"}, "The approval's id.")
SESSION = query("session", {"type": "string"}, "Of this session.")
SCHEDULE_ID = _parameter("path", "id", {"type": "string"}, "The schedule's id.")
TOOL_NAME = _parameter("path", "name", {"type": "string"}, "The tool's name.")
WEBHOOK_ID = _parameter("path", "id", {"type": "string"}, "The webhook's id.")
DELIVERY_ID = _parameter("path", "delivery", {"type": "string"}, "The delivery's id.")
DELIVERY_STATUS = query(
    "status", {"type": "string", "enum": [s.value for s in DeliveryStatus]}, "Of this status."
)
LIMIT = query("limit", {**_LIMIT, "default": DEFAULT_LIMIT}, "How many at most.")
AFTER = query("after", {"type": "string"}, "The `next` of the page before.")
AFTER_SEQ = query(
    "after", {"type": "integer", "minimum": 0}, "Only events after this sequence number."
)
IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    _KEY,
    'A string in quotes (`"…"`), or a bare word. The same key and body again: the first answer '
    "again. Another body: 422. In flight: 409.",
)
PREFER = header(
    "Prefer", {"type": "string"}, "`wait=N`: hold the answer for up to N seconds (at most 300)."
)
LAST_EVENT_ID = header("Last-Event-ID", {"type": "string"}, "The id of the last event seen.")
FOLLOW = query(
    "follow",
    {"type": "string", "enum": ["turn", "session"], "default": "turn"},
    "`session` keeps the stream open from turn to turn.",
)
STATUS = query("status", {"type": "string", "enum": [s.value for s in Status]}, "Of this status.")
AGENT = query("agent", {"type": "string"}, "Of this agent.")
TOOL = query("tool", {"type": "string"}, "With this tool.")
AT_SEQ = query(
    "at_seq", {"type": "integer", "minimum": 1}, "The event after which; else the last one."
)
OF_SESSION = query("session", {"type": "string"}, "This session only.")
