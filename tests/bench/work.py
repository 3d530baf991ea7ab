"""The work of one session, the same for every system: five model calls and four tool calls.

The scripted model reads from the task what it shall do, so one model process serves every cell.
"""

from typing import Any, Final

SLOW: Final = "[slow]"
OVER_HTTP: Final = "[http]"
SLOW_S: Final = 0.2

MODEL_CALLS: Final = 5
TOOL_CALLS: Final = 4
EXPRESSIONS: Final = tuple(f"{i} * 17 + {i * i}" for i in range(1, TOOL_CALLS + 1))
ANSWER: Final = "The four results are 18, 38, 60 and 84."
SYSTEM: Final = "You are a careful assistant. Use the tools for every sum, then answer briefly."

CALCULATE: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Work out an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


def task(*, slow: bool, over_http: bool = False) -> str:
    """Return the task of a session."""
    marks = [mark for mark, wanted in ((SLOW, slow), (OVER_HTTP, over_http)) if wanted]
    return " ".join(["Work out four sums, one after the other.", *marks])
