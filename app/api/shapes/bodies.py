"""What clients may send: the shapes of request bodies, their limits, and the faults in them."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from app.api.pointers import pointer_within
from app.runtime.refusals import FieldFault, Invalid, NotSupported
from app.runtime.sessions.creation import Wanted

_MOST_SECONDS: Final = 7 * 24 * 3600
_MOST_TEXT: Final = 1_000_000


def _whole(value: object) -> object:
    """Take 5.0 for 5: JSON has only one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1, le=100)]
Seconds = Annotated[float, Field(gt=0, le=_MOST_SECONDS, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=_MOST_TEXT, pattern=r"\S")]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class Body(BaseModel):
    """A request body: unknown fields are refused, types are taken at their word."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LimitsIn(Body):
    """The bounds of a turn; what is left out keeps its default. Times in seconds."""

    max_steps: Count = 12
    token_budget: Annotated[Whole, Field(ge=1, le=10_000_000)] = 100_000
    max_cost: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    max_consecutive_errors: Count = 3
    loop_window: Annotated[Whole, Field(ge=2, le=100)] = 6
    loop_threshold: Annotated[Whole, Field(ge=2, le=100)] = 3
    max_repeat: Count = 2
    total_timeout_s: Seconds = 90
    tool_timeout_s: Seconds = 15
    max_tool_calls_per_step: Count = 5

    def given(self) -> dict[str, object]:
        """Return what the client has set."""
        return self.model_dump(exclude_unset=True)


class AgentIn(Body):
    """An agent at one of its versions."""

    name: Name
    version: Annotated[Whole, Field(ge=1)] | None = None


class SessionIn(Body):
    """A session to create."""

    task: Text
    agent: Name | AgentIn = "default"
    model: Name | None = None
    tools: Annotated[list[Name], Field(max_length=512)] | None = None
    limits: LimitsIn | None = None
    output_schema: dict[str, object] | None = None
    mode: Literal["react", "single", "workflow", "plan_execute"] = "react"
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(min_length=1, max_length=128)],
                Annotated[str, Field(max_length=4096)],
            ],
            Field(max_length=64),
        ]
        | None
    ) = None
    on_disconnect: Literal["continue", "cancel"] = "continue"

    def check_built(self) -> None:
        """Refuse what the contract has and this release has not.

        Raises:
            NotSupported: naming the field.

        """
        name = self.agent if isinstance(self.agent, str) else self.agent.name
        version = None if isinstance(self.agent, str) else self.agent.version
        asked = {
            "/agent": name != "default" or version not in {None, 1},
            "/output_schema": self.output_schema is not None,
            "/mode": self.mode != "react",
        }
        refuse_unbuilt(asked)

    def wanted(self, traceparent: str | None = None) -> Wanted:
        """Return what the use case takes."""
        return Wanted(
            task=self.task,
            model=self.model,
            tools=None if self.tools is None else tuple(self.tools),
            limits=None if self.limits is None else self.limits.given(),
            metadata=self.metadata,
            traceparent=traceparent,
            on_disconnect=self.on_disconnect,
        )


class MessageIn(Body):
    """The next user message."""

    text: Text
    when_busy: Literal["reject", "enqueue", "interrupt", "steer"] = "reject"


class ResumeIn(Body):
    """Limits to raise before a turn goes on."""

    limits: LimitsIn | None = None


class VerificationIn(Body):
    """What a person knows of a call whose outcome is unknown."""

    call_id: Name
    outcome: Literal["happened", "did_not_happen"]
    output: object = None


class ToolResultIn(Body):
    """What a call returned which the client carried out: `output`, or `error` where it failed."""

    call_id: Name
    output: object = None
    error: Annotated[str, Field(min_length=1, max_length=_MOST_TEXT)] | None = None

    @model_validator(mode="after")
    def one_of_both(self) -> "ToolResultIn":
        """Take an output (null counts, when it is said) or an error."""
        said = self.model_fields_set
        if (self.error is not None) == ("output" in said):
            message = "give either `output` or `error`"
            raise ValueError(message)
        return self


class DecisionIn(Body):
    """What a person decides on an approval; `hash` is that of the arguments which they saw."""

    decision: Literal["approve", "deny"]
    message: Annotated[str, Field(max_length=10_000)] | None = None
    arguments: dict[str, object] | None = None
    hash: Name | None = None

    @model_validator(mode="after")
    def changed_only_where_made(self) -> "DecisionIn":
        """Take changed arguments for a call that is to be made."""
        if self.decision == "deny" and self.arguments is not None:
            message = "`arguments` changes a call that is approved; a denied one is not made"
            raise ValueError(message)
        return self


class PinnedIn(Body):
    """A prompt at one of its versions."""

    name: Name
    version: Annotated[Whole, Field(ge=1)] | None = None


class GivenResultIn(Body):
    """What a call is to have returned in a fork."""

    call_id: Name
    output: object


class ForkIn(Body):
    """Where a session goes on another way, and what is different there."""

    at_seq: Annotated[Whole, Field(ge=1)]
    task: Text | None = None
    model: Name | None = None
    prompts: Annotated[dict[Name, PinnedIn], Field(max_length=16)] | None = None
    tool_result: GivenResultIn | None = None


class InvokeIn(Body):
    """The arguments of a dry run."""

    arguments: dict[str, object] = {}


class NothingIn(Body):
    """No fields."""


M = TypeVar("M", bound=Body)


def checked(model: type[M], value: object) -> M:
    """Return a body as its shape says.

    Raises:
        Invalid: naming every field at fault.

    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = _faults(error, value, model)
    named = ", ".join(fault.pointer or "/" for fault in faults[:3])
    raise Invalid(f"The request cannot be taken as it is; look at {named}.", *faults)


def _faults(error: ValidationError, value: object, model: type[Body]) -> list[FieldFault]:
    found: dict[str, str] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        kind = item["type"]
        place = pointer_within(value, item["loc"], missing=kind == "missing")
        message = item["msg"]
        if kind == "extra_forbidden":
            message = "unknown field"
            if len(item["loc"]) == 1:
                message += f"; there are: {', '.join(model.model_fields) or 'none'}"
        found.setdefault(place, message)
    return [FieldFault(place, message) for place, message in found.items()]


def refuse_unbuilt(asked: Mapping[str, bool]) -> None:
    """Refuse the fields that ask for what is not built yet; they are never stored and ignored.

    Raises:
        NotSupported: naming them.

    """
    fields = [field for field, wanted in asked.items() if wanted]
    if fields:
        message = "not supported yet; leave it out or give its default"
        faults = [FieldFault(field, message) for field in fields]
        raise NotSupported(f"Not supported yet: {', '.join(fields)}.", *faults)
