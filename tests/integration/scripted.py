"""Scripts for the model of these tests: by what the user said last, and how far the turn is."""

from collections.abc import Mapping, Sequence

from tests.scripted.answers import Answer, call, calls, tc
from tests.scripted.history import Body, Invalid
from tests.scripted.scripts import Script


def by_text(scripts: Mapping[str, Sequence[Answer]]) -> Script:
    """Give out a list of answers for each message of the user."""

    def script(request: Body, _n: int) -> Answer:
        said, done = last_said(request)
        answers = scripts.get(said, ())
        if done >= len(answers):
            raise Invalid(f"after {said!r} there are only {len(answers)} answers")
        return answers[done]

    return script


def last_said(request: Body) -> tuple[str, int]:
    """Return the user's last message, and how many answers came after it."""
    done = 0
    for message in reversed(request["messages"]):
        if message["role"] == "user":
            return str(message["content"]), done
        done += message["role"] == "assistant"
    raise Invalid("nobody said anything")


SLOW = call("slow", sec=60)
REMINDER = call("create_reminder", title="Weather", time="07:00", text="Take an umbrella")
ECHO_AND_PAY = calls(
    tc("call_echo", "echo", '{"text": "hello"}'), tc("call_pay", "pay", '{"amount": 5}')
)
