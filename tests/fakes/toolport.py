"""A tools port and an argument reader that do as they are told, and remember what they were asked.

tools = FakeTools({"echo": lambda request: dict(request.arguments), "pay": fault})
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.core.canonical import Json
from app.core.faults import Fault, FaultKind
from app.core.toolbox import ToolSpec
from app.runtime.errors import ToolFailure
from app.runtime.ports.tools import Checked, StatusReply, ToolReply, ToolRequest

Answer = Fault | ToolReply | Callable[[ToolRequest], Json]
"""A fault to fail with, a reply to give, or a function that makes the output."""

Status = Fault | StatusReply
"""A fault to fail with when asked, or what the tool says of a call."""


@dataclass(slots=True)
class FakeTools:
    """A `ToolPort`. A list of answers is used up in order, its last one for ever."""

    answers: Mapping[str, Answer | Sequence[Answer]] = field(default_factory=dict)
    requests: list[ToolRequest] = field(default_factory=list)
    statuses: Mapping[str, Status | Sequence[Status]] = field(default_factory=dict)
    checked: list[ToolRequest] = field(default_factory=list)

    async def run(self, request: ToolRequest) -> ToolReply:
        """Give the next answer of the tool."""
        name = request.spec.name
        earlier = sum(1 for asked in self.requests if asked.spec.name == name)
        self.requests.append(request)
        if name not in self.answers:
            message = f"{name} is not scripted"
            raise ToolFailure(Fault.of(FaultKind.INTERNAL, message, sent=False))
        answer = self.answers[name]
        if isinstance(answer, Sequence):
            answer = answer[min(earlier, len(answer) - 1)]
        if isinstance(answer, Fault):
            raise ToolFailure(answer)
        if isinstance(answer, ToolReply):
            return answer
        return ToolReply(answer(request), None)

    async def check(self, request: ToolRequest) -> StatusReply:
        """Give the next status of the tool; a tool without one does not know."""
        name = request.spec.name
        earlier = sum(1 for asked in self.checked if asked.spec.name == name)
        self.checked.append(request)
        said = self.statuses.get(name, StatusReply(happened=None))
        status = said[min(earlier, len(said) - 1)] if isinstance(said, Sequence) else said
        if isinstance(status, Fault):
            raise ToolFailure(status)
        return status

    def count(self, name: str) -> int:
        """Return how often a tool was run."""
        return sum(1 for request in self.requests if request.spec.name == name)

    def keys(self, name: str) -> set[str]:
        """Return the idempotency keys with which a tool was run."""
        return {request.key for request in self.requests if request.spec.name == name}


class FakeArguments:
    """An `ArgumentReader` that takes every JSON object in which nothing required is missing."""

    async def read(self, spec: ToolSpec, raw: str) -> Checked:
        """Return the object, or a fault."""
        try:
            value = json.loads(raw or "{}")
        except ValueError:
            fault = Fault.of(FaultKind.UNREADABLE_CALL, "The arguments are not valid JSON.")
            return Checked(None, fault, "{}")
        if not isinstance(value, dict):
            fault = Fault.of(FaultKind.INVALID_ARGS, "The arguments are not an object.")
            return Checked(None, fault, "{}")
        required = spec.parameters.get("required")
        missing = [n for n in required if n not in value] if isinstance(required, list) else []
        if missing:
            fault = Fault.of(FaultKind.INVALID_ARGS, f"Parameter `{missing[0]}` is missing.")
            return Checked(None, fault, None)
        return Checked(value, None, None if raw else "{}")
