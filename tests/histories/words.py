"""What the model does at random: each message is `NAME WORD N`, and the word says what comes.

`answer` ends the turn at once; `hold` and `look` when the test says so, of the model's answer and
of a tool's. `pay` has an effect, in `doubt` nobody knows whether it had one. `send` needs an
approval, `ask` a client, `limit` runs into a limit, `fail` into an error of the endpoint.
"""

from typing import Final

from tests.integration.plans import last_message
from tests.integration.scripted import last_said
from tests.scripted.answers import Answer, args, calls, error, held, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Hold

STEPS: Final[dict[str, tuple[str, ...]]] = {
    "look": ("look", "pay"),
    "doubt": ("pay",),
    "pay": ("pay", "put"),
    "send": ("send", "look"),
    "ask": ("ask", "pay"),
}
"""The tools which a word calls in one step."""
HELD: Final[dict[str, str]] = {"look": "look", "doubt": "pay"}
"""The tool whose call stays with its server; that of `doubt` has a short timeout."""
WORDS: Final = ("answer", "hold", *STEPS, "limit", "fail")
MOST_STEPS: Final = 3


class Model:
    """The script, with its holds by what was said."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.holds: dict[str, Hold] = {}

    def __call__(self, request: Body, _n: int) -> Answer:
        """Answer a request."""
        said = last_message(request)
        parts = said.split(" ")
        if "tools" not in request or len(parts) != 3:
            return text("As far as I came.", pieces=1)
        name, word, number = parts
        _, answered = last_said(request)
        if word == "hold":
            return held(self.holds.setdefault(said, Hold()), text(f"{said}: done.", pieces=1))
        if word == "fail":
            return error(400, "No such thing.")
        if word == "limit":
            return _step(f"{name}-{number}-{len(request['messages'])}", ("look",))
        if word in STEPS and not answered:
            return _step(f"{name}-{number}", STEPS[word])
        return text(f"{said}: done.", pieces=1)


def _step(prefix: str, tools: tuple[str, ...]) -> Answer:
    return calls(*(tc(f"{prefix}-{t}", t, args(op=f"{prefix}-{t}")) for t in tools))


def held_op(said: str) -> str | None:
    """Return the op that stays with its server after this was said."""
    name, word, number = said.split(" ")
    return f"{name}-{number}-{HELD[word]}" if word in HELD else None
