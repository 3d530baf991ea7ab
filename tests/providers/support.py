"""What the tests of this room share: a clock, requests, and one question to a scripted model."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.core.canonical import Json
from app.core.events import ModelRef
from app.core.messages import AssistantMessage, Message, MessageCall, ToolMessage, UserMessage
from app.core.toolbox import ToolKind, ToolSpec
from app.providers.config import ModelConfig, Profile
from app.providers.registry import Models
from app.runtime.errors import ModelFailure
from app.runtime.ports.models import ModelReply, ModelRequest
from tests.scripted.answers import Answer
from tests.scripted.model import ScriptedModel

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
KEY = "sk-canary-1"
NOW_US = 1_760_000_000_000_000


class FixedClock:
    """A clock that stands; only `now_us` is used here."""

    def now_us(self) -> int:
        return NOW_US

    def boot_s(self) -> float:
        return 0.0

    def entropy(self, size: int) -> bytes:
        return bytes(size)

    def jitter(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a provider does not sleep ({seconds})")


def tool(name: str, alias: str | None = None, /, **properties: Json) -> ToolSpec:
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    return ToolSpec(name, 1, ToolKind.BUILTIN, f"The tool {name}.", schema, alias=alias)


ECHO = tool("echo", text={"type": "string"})
NOW = tool("now")
PAY = tool("pay", amount={"type": "number"})


def request(
    *messages: Message,
    model: str = "m",
    system: str = "Be careful.",
    tools: tuple[ToolSpec, ...] = (ECHO, NOW, PAY),
    deadline_s: float = 10.0,
    offer_finish: bool = True,
) -> ModelRequest:
    return ModelRequest(
        model=ModelRef(model),
        system=system,
        messages=messages or (UserMessage("hello", 1),),
        tools=tools,
        traceparent=TRACEPARENT,
        deadline_s=deadline_s,
        offer_finish=offer_finish,
    )


def round_of(
    wire_id: str,
    name: str = "echo",
    arguments: str = "{}",
    *,
    text: str = "",
    reasoning: str | None = None,
) -> tuple[Message, Message]:
    """Return an assistant message with one call, and its result."""
    call = MessageCall(f"t1_{wire_id}", wire_id, name, arguments)
    result = ToolMessage(f"t1_{wire_id}", wire_id, name, "ok", 1)
    return AssistantMessage(text, 1, (call,), reasoning), result


def models(base_url: str, *, profile: Profile | None = None, **parameters: Json) -> Models:
    config = ModelConfig("m", base_url, KEY, profile=profile or Profile(), parameters=parameters)
    return Models([config], clock=FixedClock())


async def ask(
    *answers: Answer,
    asked: ModelRequest | None = None,
    profile: Profile | None = None,
    on_delta: Callable[[str], None] | None = None,
    times: int = 1,
) -> ModelReply:
    """Return the last of `times` answers of an endpoint that follows this script."""
    async with ScriptedModel(answers) as endpoint:
        port = models(endpoint.base_url, profile=profile)
        try:
            for _ in range(times - 1):
                await port.answer(asked or request(), on_delta)
            return await port.answer(asked or request(), on_delta)
        finally:
            await port.close()


async def refusal(*answers: Answer, asked: ModelRequest | None = None) -> ModelFailure:
    """Return the failure with which an attempt ends."""
    try:
        reply = await ask(*answers, asked=asked)
    except ModelFailure as failure:
        return failure
    raise AssertionError(f"an answer instead of a failure: {reply}")


def arguments_of(reply: ModelReply) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reply.calls]


def with_tools(asked: ModelRequest, tools: Sequence[ToolSpec]) -> ModelRequest:
    return replace(asked, tools=tuple(tools))
