"""The built-in demo model, and the registry it stands in for."""

import json

import pytest

from app.core.faults import FaultKind
from app.core.messages import AssistantMessage, Message, MessageCall, ToolMessage, UserMessage
from app.providers.config import ModelConfig, Prices
from app.providers.demo import DEMO, LABEL
from app.providers.registry import Models
from app.providers.sums import expression_in
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply
from tests.providers.support import FixedClock, arguments_of, models, request, tool

CALCULATE = tool("calculate", expression={"type": "string"})
WEATHER = tool("get_weather", city={"type": "string"}, days={"type": "integer"})
TOOLS = (CALCULATE, WEATHER)


async def demo(*messages: Message, tools: tuple[object, ...] = TOOLS) -> ModelReply:
    port = Models([], clock=FixedClock())
    given = TOOLS if tools else ()
    return await port.answer(request(*messages, model="demo", tools=given), None)


@pytest.mark.parametrize(
    ("task", "expression"),
    [
        ("A jacket costs 299, 20 % off, then minus 50. What do I pay?", "299 * 0.8 - 50"),
        ("costs 299 with a 20 % discount and a coupon of 50", "299 * 0.8 - 50"),
        ("price 1,299.50 plus 19 % tax, divided by 3", "1299.50 * 1.19 / 3"),
        ("100 minus 30, times 2", "(100 - 30) * 2"),
        ("What is 15% of 80?", "80 * 0.15"),
        ("What is 12*(3+4)?", "12*(3+4)"),
        ("299 x 0.8 - 50", "299 * 0.8 - 50"),
        ("3 \u00d7 4 \u00f7 2", "3 * 4 / 2"),
        ("2^10", "2**10"),
        ("See you on 2025-12-15 at 10:30", None),
        ("5 apples", None),
        ("hello", None),
    ],
)
async def test_arithmetic_becomes_an_expression(task: str, expression: str | None) -> None:
    assert expression_in(task) == expression
    calls = arguments_of(await demo(UserMessage(task, 1)))
    wanted = [("calculate", json.dumps({"expression": expression}))] if expression else []
    assert calls == wanted


@pytest.mark.req("OPS-6")
async def test_a_result_is_answered_with() -> None:
    task = UserMessage("299 * 0.8 - 50", 1)
    first = await demo(task)
    (call,) = first.calls
    made = MessageCall("t1_c1_0", call.wire_id, call.name, call.arguments)
    result = ToolMessage("t1_c1_0", call.wire_id, "calculate", '{"result":189.2}', 1)
    history = (task, AssistantMessage("", 1, (made,)), result)
    reply = await demo(*history)
    assert reply.text == f"{LABEL} calculate answered: 189.2"
    again = await demo(*history, AssistantMessage(reply.text, 1), UserMessage("1 + 1", 1))
    assert again.calls[0].wire_id != call.wire_id


async def test_a_tools_name_with_pairs_calls_it() -> None:
    task = 'get_weather city="New York" days=3'
    assert arguments_of(await demo(UserMessage(task, 1))) == [
        ("get_weather", '{"city": "New York", "days": 3}')
    ]
    task = "please get_weather city=2 days=soon"
    assert arguments_of(await demo(UserMessage(task, 1))) == [
        ("get_weather", '{"city": "2", "days": "soon"}')
    ]


async def test_all_else_is_echoed_in_pieces() -> None:
    pieces: list[str] = []
    port = Models([], clock=FixedClock())
    asked = request(UserMessage("my_get_weather is fine", 1), model="demo", tools=TOOLS)
    reply = await port.answer(asked, pieces.append)
    assert reply.text == "".join(pieces) == f"{LABEL} You said: my_get_weather is fine"
    assert len(pieces) > 2
    assert (reply.usage, reply.finish_reason) == (None, "stop")


async def test_without_tools_there_is_no_call_and_a_note_is_no_task() -> None:
    reply = await demo(UserMessage("1 + 1", 1), UserMessage("go on", 1, note=True), tools=())
    assert reply.text == f"{LABEL} You said: 1 + 1"


def test_the_demo_is_there_only_without_a_configured_model() -> None:
    assert Models([], clock=FixedClock()).get(None) is DEMO
    port = models("http://x/v1")
    assert [ref.name for ref in port.names()] == ["m"]
    assert port.get("demo") is None


def test_the_first_model_is_the_default_and_facts_are_passed_on() -> None:
    first = ModelConfig("a", "http://a/v1", prices=Prices(1.0, 0.1, 2.0), context_window=9000)
    port = Models([first, ModelConfig("b", "http://b/v1")], clock=FixedClock())
    ref = port.get(None)
    assert ref is not None
    assert ref == port.get("a") == port.names()[0]
    assert (ref.context_window, ref.price_cached, ref.price_output) == (9000, 0.1, 2.0)
    assert [known.name for known in port.names()] == ["a", "b"]


async def test_a_model_that_is_no_longer_configured_is_a_fault() -> None:
    with pytest.raises(ModelFailure) as caught:
        await models("http://x/v1").answer(request(model="gone"), None)
    assert (caught.value.fault.kind, caught.value.fault.sent) == (FaultKind.REFUSED_REQUEST, False)
