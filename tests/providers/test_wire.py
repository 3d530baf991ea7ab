"""What leaves for an endpoint."""

import msgspec
import pytest

from app.core.canonical import Json
from app.core.messages import AssistantMessage, Message, UserMessage
from app.core.toolbox import ToolKind, ToolSpec
from app.providers.config import ModelConfig, Profile
from app.providers.schemas import plain_schema
from app.providers.wire import ToolWriter, request_body
from app.runtime.ports.models import ModelRequest
from tests.providers.support import ECHO, NOW, ask, models, request, round_of, tool
from tests.scripted.answers import calls, tc, text
from tests.scripted.history import Body, Invalid, check
from tests.scripted.model import ScriptedModel

USER = UserMessage("go", 1)


def body_of(asked: ModelRequest, profile: Profile | None = None) -> Body:
    config = ModelConfig("m", "http://x/v1", profile=profile or Profile())
    written = request_body(asked, config, ToolWriter(plain_schema), ())
    body: Body = msgspec.json.decode(written)
    return body


def sent(*messages: Message, profile: Profile | None = None) -> list[Body]:
    body = body_of(request(*messages, system=""), profile)
    check(body, msgspec.json.decode)
    found: list[Body] = body["messages"]
    return found


def test_a_history_is_written_by_the_rules_of_the_protocol() -> None:
    assert sent(USER, *round_of("a", arguments='{"text":"1"}')) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "type": "function",
                    "id": "a",
                    "function": {"name": "echo", "arguments": '{"text":"1"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]


@pytest.mark.case("C001")
def test_empty_arguments_are_replayed_as_an_object() -> None:
    call = sent(USER, *round_of("a", arguments=""))[1]["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"


@pytest.mark.case("C039")
@pytest.mark.parametrize(
    ("profile", "content"), [(Profile(), None), (Profile(content_null=False), "")]
)
def test_a_turn_of_calls_only_has_the_content_its_endpoint_takes(
    profile: Profile, content: str | None
) -> None:
    assert sent(USER, *round_of("a"), profile=profile)[1]["content"] == content
    assert sent(USER, *round_of("a", text="look"), profile=profile)[1]["content"] == "look"


@pytest.mark.case("C025")
def test_reasoning_goes_back_only_where_the_profile_says_so() -> None:
    history = (USER, *round_of("a", reasoning="abc"))
    assert "reasoning_content" not in sent(*history)[1]
    replayed = sent(*history, profile=Profile(replay_reasoning=True))
    assert replayed[1]["reasoning_content"] == "abc"
    answered = (USER, AssistantMessage("x", 1, reasoning="abc"), USER)
    assert "reasoning_content" not in sent(*answered, profile=Profile(replay_reasoning=True))[1]


@pytest.mark.case("C118")
def test_only_valid_unicode_leaves() -> None:
    message = sent(UserMessage("x\ud83c 🎉 \ud83c\udf89", 1))[0]
    assert message["content"] == "x\ufffd 🎉 🎉"


def test_names_on_the_wire_are_those_a_provider_takes() -> None:
    dotted = tool("shop.find", "shop_find_1a2b")
    history = (USER, *round_of("a", "shop.find"), *round_of("b", "gone.tool"))
    body = body_of(request(*history, tools=(dotted,)))
    check(body, msgspec.json.decode)
    names = [m["tool_calls"][0]["function"]["name"] for m in body["messages"] if "tool_calls" in m]
    assert names == ["shop_find_1a2b", "gone_tool"]
    assert body["tools"][0]["function"]["name"] == "shop_find_1a2b"


def test_finish_is_offered_unless_the_request_says_not() -> None:
    def offered(asked: ModelRequest) -> list[str]:
        return [t["function"]["name"] for t in body_of(asked).get("tools", [])]

    assert offered(request(tools=(ECHO, NOW))) == ["echo", "now", "finish"]
    assert offered(request(tools=())) == ["finish"]
    assert "tools" not in body_of(request(tools=(), offer_finish=False))


@pytest.mark.req("PROMPT-7")
def test_a_request_begins_with_the_one_before() -> None:
    config = ModelConfig("m", "http://x/v1", parameters={"temperature": 0})
    writer = ToolWriter(plain_schema)
    first = request_body(request(USER), config, writer, ())
    longer = request_body(request(USER, *round_of("a")), config, writer, ())
    assert first.endswith(b"]}")
    assert longer.startswith(first[:-2])


def test_definitions_are_written_once_for_the_same_tools() -> None:
    asked: list[str] = []

    def schema_of(spec: ToolSpec) -> dict[str, Json]:
        asked.append(spec.name)
        return {"type": "object"}

    writer = ToolWriter(schema_of)
    first = writer.written((ECHO, NOW), offer_finish=True)
    assert writer.written((ECHO, NOW), offer_finish=True) is first
    assert asked == ["echo", "now"]
    other = tool("echo", text={"type": "number"})
    assert writer.written((other, NOW), offer_finish=True) is not first
    for number in range(300):
        writer.written((tool(f"t{number}"),), offer_finish=False)
    assert writer.written((ECHO, NOW), offer_finish=True) is not first


SCHEMAS: list[tuple[dict[str, Json], Json]] = [
    (
        {
            "$schema": "x",
            "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}},
            "$defs": {"A": {"type": "string"}},
        },
        {"a": {"type": "string", "description": "d"}},
    ),
    (
        {
            "properties": {"a": {"$ref": "#/$defs/N"}},
            "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
        },
        {"a": {"type": "object", "properties": {"next": {}}}},
    ),
    (
        {"properties": {"definitions": {"enum": [1]}, "b": {"anyOf": [{"$ref": "http://x"}]}}},
        {"definitions": {"enum": [1]}, "b": {"anyOf": [{}]}},
    ),
    (
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/no/where"}}},
        {"a": {}, "b": {}},
    ),
    ({}, {}),
]


@pytest.mark.parametrize(("parameters", "properties"), SCHEMAS)
def test_schemas_hold_no_references(parameters: dict[str, Json], properties: Json) -> None:
    schema = plain_schema(ToolSpec("t", 1, ToolKind.BUILTIN, "", parameters))
    assert schema == {"type": "object", "properties": properties}


@pytest.mark.case("C008", "C003")
async def test_ids_stay_unique_through_a_conversation() -> None:
    """An endpoint that calls everything `call_1` gets a history in which no id occurs twice."""
    history: list[Message] = [USER]
    async with ScriptedModel([calls(tc("call_1", "echo"), tc("call_1", "now"))] * 3) as endpoint:
        port = models(endpoint.base_url)
        for _ in range(3):
            reply = await port.answer(request(*history), None)
            for call in reply.calls:
                history += round_of(call.wire_id, call.name)
        await port.close()
    ids = [m.calls[0].wire_id for m in history if isinstance(m, AssistantMessage)]
    assert len(set(ids)) == len(ids) == 6
    assert ids[0] == "call_1"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "tool", "tool_call_id": "a", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}],
        [{"role": "assistant", "content": "x"}],
    ],
)
def test_the_scripted_endpoint_refuses_what_providers_refuse(messages: list[Body]) -> None:
    with pytest.raises(Invalid):
        check({"model": "m", "messages": messages}, msgspec.json.decode)


async def test_the_answer_of_a_closing_call_needs_no_tools() -> None:
    closing = request(USER, *round_of("a"), tools=(), offer_finish=False)
    assert (await ask(text("the rest"), asked=closing)).text == "the rest"
