"""What endpoints of users (webhooks) are told of, and under which name.

Most events are told under their own type. That a session waits for its user has several causes,
each an event of its own; endpoints hear of all of them as `input.requested`. A call of a client
tool is told with its intent, since its result is taken from then on, whatever the others do.
"""

from typing import Final

from app.core.events import Body, ToolIntended, VerificationAsked
from app.core.state import State

EVENTS: Final = (
    "turn.ended",
    "input.requested",
    "approval.requested",
    "security.flagged",
    "escalation.raised",
)
"""The events that an endpoint can ask for."""

INPUT_REQUESTED: Final = "input.requested"


def told_as(body: Body, state: State | None) -> str | None:
    """Return under which name endpoints are told of an event; None when they are not.

    `state` is what the event has led to: a call that is over by then is wanted from nobody.
    """
    if isinstance(body, VerificationAsked):
        return INPUT_REQUESTED
    if isinstance(body, ToolIntended):
        calls = () if state is None else state.calls
        wanted = any(c.with_client and c.call.call_id == body.call_id for c in calls)
        return INPUT_REQUESTED if wanted else None
    return body.TYPE if body.TYPE in EVENTS else None
