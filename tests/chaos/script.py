"""What the model does in a scripted session: by the user's words, until all ops are done.

A session's first message is `NAME work`; each of its ops is named `NAME-…`, so whatever has an
effect tells whose it is. A call that is said not to have happened is made again.
"""

from typing import Final

from tests.chaos.effects import EFFECTS
from tests.integration.plans import last_message, task_of
from tests.integration.scripted import last_said
from tests.scripted.answers import Answer, args, calls, tc, text
from tests.scripted.history import Body

Step = tuple[tuple[str, str], ...]
TURNS: Final[dict[str, tuple[Step, ...]]] = {
    "work": (
        (("look", "look1"), ("put", "put1"), ("pay", "pay1")),
        (("pay", "pay2"),),
    ),
    "steps": tuple(
        ((("put", f"put{n}"),) if n % 2 else (("look", f"look{n}"),)) for n in range(2, 7)
    ),
    "people": (
        (("send", "send1"), ("look", "look9"), ("ask", "ask1")),
        (("order", "order1"),),
    ),
    "slow": ((("slow", "slow1"),),),
    "last": (),
}
"""The tool calls of a turn by its word: steps of tools and what each call is for."""
MOST_STEPS: Final = 4
"""The limit of a session: `steps` comes to it, and goes on once it is raised."""


def name_of(request: Body) -> str:
    """Return the session's name."""
    return task_of(request).split(maxsplit=1)[0]


def script(request: Body, _n: int) -> Answer:
    """Answer a request."""
    if "tools" not in request:
        return text("As far as I came.", pieces=1)
    name = name_of(request)
    word = last_message(request).rpartition(" ")[2]
    done = _done(request)
    for step in TURNS.get(word, ()):
        missing = [(tool, f"{name}-{op}") for tool, op in step if f"{name}-{op}" not in done]
        if missing:
            at = len(request["messages"])
            return calls(
                *(tc(f"c{at}_{i}", tool, args(op=op)) for i, (tool, op) in enumerate(missing))
            )
    return text(f"{name} has done {word}.", pieces=1)


def _done(request: Body) -> set[str]:
    """Return the ops of this turn whose calls have a result, other than that nothing happened."""
    _, answers = last_said(request)
    ops: dict[str, str] = {}
    done: set[str] = set()
    if not answers:
        return done
    for message in request["messages"]:
        if message["role"] == "user":
            ops = {}
        for call in message.get("tool_calls", ()):
            ops[call["id"]] = call["function"]["arguments"]
        if message["role"] == "tool" and "did not happen" not in message["content"]:
            arguments = ops.get(message["tool_call_id"], "")
            done.add(arguments.rpartition(": ")[2].strip('"}'))
    return done


def effects_of(name: str, words: tuple[str, ...]) -> dict[str, str]:
    """Return the ops that must have had exactly one effect, with their tools."""
    return {
        f"{name}-{op}": tool
        for word in words
        for step in TURNS[word][:MOST_STEPS]
        for tool, op in step
        if EFFECTS[tool] in {"once", "idempotent"}
    }
