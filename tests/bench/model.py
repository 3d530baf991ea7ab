"""The scripted model of the bench: one script that takes its orders from the task.

`python -m tests.bench.model --port 0 --script bench` prints its base URL. The answers' bytes are
made once; a call costs little more than reading its JSON, and the bench reports how much.
"""

import asyncio
from typing import Final

import uvloop

from tests.bench.work import ANSWER, EXPRESSIONS, OVER_HTTP, SLOW, SLOW_S
from tests.scripted import model
from tests.scripted.answers import Answer, args, calls, delayed, tc, text
from tests.scripted.history import Body
from tests.scripted.scripts import SCRIPTS

_SUMS: Final = [
    calls(tc(f"call_{n}", "calculate", args(expression=expression)))
    for n, expression in enumerate(EXPRESSIONS, 1)
]
_ECHOES: Final = [
    calls(tc(f"call_{n}", "echo", args(text=expression)))
    for n, expression in enumerate(EXPRESSIONS, 1)
]
_DONE: Final = text(ANSWER)


def bench(request: Body, _n: int) -> Answer:
    """Answer by how many results the history has, late where the task says so."""
    messages = request["messages"]
    asked = next(m["content"] for m in messages if m["role"] == "user")
    done = sum(m["role"] == "tool" for m in messages)
    steps = _ECHOES if OVER_HTTP in asked else _SUMS
    answer = steps[done] if done < len(steps) else _DONE
    return delayed(SLOW_S, answer) if SLOW in asked else answer


if __name__ == "__main__":
    SCRIPTS["bench"] = bench
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    model.main()
