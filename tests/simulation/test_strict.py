"""The checker of requests is strict by itself: each fault it knows, it finds."""

import pytest

from app.core.messages import AssistantMessage, Message, MessageCall, ToolMessage, UserMessage
from app.runtime.ports.models import ModelRequest
from tests.fakes.scripted_tools import spec
from tests.simulation.outside import MODEL
from tests.simulation.strict import refusal

USER = UserMessage("hello", 2)
SAYS = AssistantMessage("hello yourself", 3)


def asks(*ids: str, arguments: str = "{}") -> AssistantMessage:
    calls = tuple(MessageCall(f"t1_c1_{n}", i, "look", arguments) for n, i in enumerate(ids))
    return AssistantMessage("", 3, calls)


def result(wire_id: str, content: str = "done") -> ToolMessage:
    return ToolMessage("t1_c1_1", wire_id, "look", content, 1)


def request(*messages: Message, system: str = "You are.", twice: bool = False) -> ModelRequest:
    tools = (spec("look"),) * (2 if twice else 1)
    return ModelRequest(MODEL, system, messages, tools, "", 60)


def test_what_is_in_order_passes() -> None:
    whole = (USER, asks("a", "b"), result("a"), result("b"), SAYS, USER, asks("c"), result("c"))
    assert refusal(request(*whole)) is None


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((), "first message"),
        ((SAYS, USER), "first message"),
        ((USER, SAYS), "last message"),
        ((USER, USER), "two user messages"),
        ((UserMessage(" ", 1),), "empty user message"),
        ((USER, SAYS, SAYS, USER), "two assistant messages"),
        ((USER, AssistantMessage(" ", 1), USER), "empty assistant message"),
        ((USER, asks("a"), USER), "calls without results"),
        ((USER, asks("a", "b"), result("a")), "calls without results"),
        ((USER, asks("a", "b"), result("b"), result("a")), "where that of a belongs"),
        ((USER, asks("a"), result("a"), result("a")), "without its call"),
        ((USER, result("a")), "without its call"),
        ((USER, asks("a"), result("a", "")), "empty result"),
        ((USER, asks("a"), result("a"), asks("a"), result("a")), "used twice"),
        ((USER, asks(""), result("")), "used twice or empty"),
        ((USER, asks("a", arguments="[]"), result("a")), "no object"),
        ((USER, asks("a", arguments="{"), result("a")), "no JSON"),
    ],
)
def test_what_an_endpoint_would_refuse_is_found(messages: tuple[Message, ...], why: str) -> None:
    found = refusal(request(*messages))
    assert found is not None
    assert why in found


def test_tools_and_prompt_are_looked_at_too() -> None:
    assert refusal(request(USER, twice=True)) == "two tools of one name"
    assert refusal(request(USER, system="")) == "no system prompt"
