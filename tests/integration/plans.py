"""Scripts of a model that serves many sessions at once: each task names what it is to get."""

from collections import Counter
from collections.abc import Mapping

from tests.scripted.answers import Answer, args, calls, held, tc, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.scripts import Script, results_so_far


def task_of(request: Body) -> str:
    """Return the session's first message."""
    return str(next(m["content"] for m in request["messages"] if m["role"] == "user"))


def last_message(request: Body) -> str:
    """Return the newest message of the user."""
    return str(next(m["content"] for m in reversed(request["messages"]) if m["role"] == "user"))


def by_task(plans: Mapping[str, Script]) -> Script:
    """Answer each session by the plan that the first word of its task names."""
    return lambda request, n: plans[task_of(request).split(maxsplit=1)[0]](request, n)


class Stepwise:
    """Several steps with one tool call each, then an answer; counts how often each was asked.

    A request whose step is in `holds` waits for its hold. `asked` counts by task and step.
    """

    def __init__(self, *steps: tuple[str, Mapping[str, object]], answer: str = "All done.") -> None:
        self._steps = steps
        self._answer = answer
        self.holds: dict[int, Hold] = {}
        self.asked: Counter[tuple[str, int]] = Counter()

    def __call__(self, request: Body, _n: int) -> Answer:
        done = len(results_so_far(request))
        self.asked[task_of(request), done] += 1
        answer = text(self._answer)
        if done < len(self._steps):
            name, arguments = self._steps[done]
            answer = calls(tc(f"call_{done + 1}", name, args(**arguments)))
        return held(self.holds[done], answer) if done in self.holds else answer


def sums(count: int) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return steps that calculate something else each time."""
    return tuple(("calculate", {"expression": f"{i} * 17 + {i * i}"}) for i in range(1, count + 1))
