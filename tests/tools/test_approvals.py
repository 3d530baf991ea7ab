"""Who must agree to a call: by registration, by what the tool does, by rule (TOOL-17)."""

import json
from typing import cast

import pytest

from app.core.canonical import Json
from app.core.faults import FaultKind
from app.core.toolbox import ApprovalMode, ToolKind, ToolSpec
from app.runtime.refusals import FieldFault
from app.tools.definition import describe, parse
from app.tools.errors import DefinitionError
from app.tools.validation import Arguments, provider_schema

AMOUNT: dict[str, Json] = {"type": "number", "description": "Euros"}


def pay(method: str = "POST", amount: dict[str, Json] = AMOUNT, **more: Json) -> dict[str, Json]:
    """Return a registration."""
    return {
        "name": "pay",
        "kind": "http",
        "description": "Pay somebody. Use it when asked to. Returns the receipt.",
        "parameters": {
            "type": "object",
            "properties": {"amount": amount, "to": {"type": "string", "description": "Who"}},
            "required": ["amount"],
        },
        "http": {"method": method, "url": "https://bank.test/payments"},
        "effect": "once",
        **more,
    }


def warnings(body: dict[str, Json]) -> list[str]:
    return [line for line in parse(body).lint.warnings if line.startswith("/approval")]


async def needs(spec: ToolSpec, **arguments: Json) -> bool:
    return (await Arguments().read(spec, json.dumps(arguments))).needs_approval


MARKS: list[dict[str, Json]] = [{"money": True}, {"x-money": True}, {"format": "money"}]


@pytest.mark.parametrize("mark", MARKS)
def test_money_waits_for_approval_unless_never_was_said(mark: dict[str, Json]) -> None:
    marked = {**AMOUNT, **mark}
    assert parse(pay(amount=marked)).spec.approval is ApprovalMode.ALWAYS
    assert "'amount' is money" in warnings(pay(amount=marked))[0]
    assert parse(pay(amount=marked, approval="never")).spec.approval is ApprovalMode.NEVER
    assert "'never', though 'amount' is money" in warnings(pay(amount=marked, approval="never"))[0]
    assert warnings(pay(amount=marked, approval="always")) == []
    null = parse(pay(amount=marked, approval=None))
    assert null.spec.approval is ApprovalMode.ALWAYS
    assert "not given" in "".join(null.lint.warnings)


def test_deleting_waits_for_approval_unless_never_was_said() -> None:
    assert parse(pay("DELETE")).spec.approval is ApprovalMode.ALWAYS
    assert "the tool deletes" in warnings(pay("DELETE"))[0]
    assert parse(pay("DELETE", approval="never")).spec.approval is ApprovalMode.NEVER
    assert "carried out without asking anyone" in warnings(pay("DELETE", approval="never"))[0]
    assert warnings(pay("DELETE", approval={"when": "args.amount > 1"})) == []


def test_other_tools_do_not_wait() -> None:
    constant: dict[str, Json] = {"type": "object", "const": {"money": True}}
    for amount in (AMOUNT, {**AMOUNT, "money": False}, constant):
        assert parse(pay(amount=amount)).spec.approval is ApprovalMode.NEVER
        assert warnings(pay(amount=amount)) == []
    named_so: Json = {"type": "object", "properties": {"money": {"type": "boolean"}}}
    assert parse(pay(parameters=named_so)).spec.approval is ApprovalMode.NEVER


def test_money_is_seen_wherever_it_stands() -> None:
    line: dict[str, Json] = {"type": "object", "properties": {"sum": {"x-money": True}}}
    inside: dict[str, Json] = {"type": "array", "items": {"$ref": "#/$defs/line"}}
    parameters: Json = {"properties": {"lines": inside}, "$defs": {"line": line}}
    assert parse(pay(parameters=parameters)).spec.approval is ApprovalMode.ALWAYS
    client = {**pay(amount={**AMOUNT, "money": True}), "kind": "client"}
    del client["http"]
    assert parse(client).spec.approval is ApprovalMode.ALWAYS


def test_models_are_not_told_of_the_marks() -> None:
    for mark in MARKS:
        spec = parse(pay(amount={**AMOUNT, **mark})).spec
        told = cast("dict[str, dict[str, Json]]", provider_schema(spec)["properties"])
        assert told["amount"] == AMOUNT
        shown = cast("dict[str, dict[str, Json]]", spec.parameters["properties"])
        assert shown["amount"] == {**AMOUNT, **mark}


@pytest.mark.parametrize("said", ["never", "always", {"when": "args.amount > 100"}])
def test_what_is_said_is_shown_and_can_be_registered_again(said: Json) -> None:
    spec = parse(pay("DELETE", approval=said)).spec
    shown = describe(spec)
    assert shown["approval"] == said
    again = {key: value for key, value in shown.items() if key not in {"version", "alias"}}
    assert parse(again).spec == spec


@pytest.mark.parametrize(
    ("said", "pointer", "part"),
    [
        ({"when": "args.amount >"}, "/approval/when", "Syntax error"),
        ({"when": "amount > 1"}, "/approval/when", "no variable 'amount'"),
        ({"when": "args.amount.sum()"}, "/approval/when", "no function 'sum'"),
        ({"when": "x" * 2000}, "/approval/when", "the most is 1,000"),
        ({"if": "true"}, "/approval", ""),
        ("sometimes", "/approval", ""),
        (True, "/approval", ""),
    ],
)
def test_a_rule_that_cannot_work_is_refused(said: Json, pointer: str, part: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse(pay(approval=said))
    problem = raised.value.errors[0]
    assert problem.pointer == pointer
    assert part in problem.message


def test_a_rule_over_what_is_no_parameter_is_warned_of() -> None:
    found = warnings(pay(approval={"when": "args.amountt > 1 && args.to.size() > 3"}))
    assert found == [
        "/approval/when: 'args.amountt' is no parameter of this tool; did you mean 'args.amount'?"
    ]


async def test_a_rule_is_asked_of_the_arguments_as_they_will_be_sent() -> None:
    amount: dict[str, Json] = {"type": "number", "default": 500}
    parameters: Json = {"properties": {"amount": amount}}
    spec = parse(pay(parameters=parameters, approval={"when": "args.amount > 100"})).spec
    assert await needs(spec, amount=101)
    assert not await needs(spec, amount=100)
    assert await needs(spec)  # the default is 500


async def test_a_rule_without_an_answer_means_approval() -> None:
    spec = parse(pay(approval={"when": "args.to == 'friend'"})).spec
    assert not await needs(spec, amount=1, to="other")
    assert await needs(spec, amount=1)
    numbers = parse(pay(approval={"when": "args.amount"})).spec
    assert await needs(numbers, amount=1)


async def test_always_and_never() -> None:
    assert await needs(parse(pay(approval="always")).spec, amount=1)
    assert not await needs(parse(pay(approval="never")).spec, amount=1)


async def test_arguments_that_are_not_valid_ask_nobody() -> None:
    checked = await Arguments().read(parse(pay(approval="always")).spec, '{"to": "x"}')
    assert checked.arguments is None
    assert not checked.needs_approval
    assert checked.problems == (
        FieldFault("/amount", "Parameter `amount` is missing; expected number."),
    )


async def test_problems_of_arguments_have_their_places() -> None:
    line: Json = {
        "type": "object",
        "properties": {"n/m": {"type": "integer"}},
        "additionalProperties": False,
    }
    spec = parse(pay(parameters={"properties": {"lines": {"type": "array", "items": line}}})).spec
    checked = await Arguments().read(spec, '{"lines": [{"n/m": "x"}, {"k": 1}]}')
    assert checked.fault is not None
    assert checked.fault.kind is FaultKind.INVALID_ARGS
    assert {problem.pointer for problem in checked.problems} == {"/lines/0/n~1m", "/lines/1/k"}
    assert all(problem.message in checked.fault.message for problem in checked.problems)


def test_a_tool_of_the_client_has_no_request() -> None:
    body = {key: value for key, value in pay(kind="client").items() if key != "http"}
    spec = parse(body).spec
    assert (spec.kind, spec.http) == (ToolKind.CLIENT, None)
    assert describe(spec)["kind"] == "client"
    with pytest.raises(DefinitionError, match="/http: does not belong"):
        parse(pay(kind="client"))
