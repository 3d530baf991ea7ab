"""Registering tools at a running service: who agrees to calls, who carries them out."""

from collections.abc import AsyncIterator
from http import HTTPStatus

import httpx2
import pytest
import pytest_asyncio

from tests.integration.client import Json
from tests.integration.ground import Ground, standing
from tests.integration.stack import Stacks

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(stacks: Stacks) -> AsyncIterator[Ground]:
    async with standing(stacks) as made:
        yield made


def payment(ground: Ground, name: str, **more: object) -> dict[str, object]:
    """Return a registration of a tool that pays, under a name of its own."""
    return {
        "name": name,
        "kind": "http",
        "description": "Pay somebody. Use it when asked to. Returns the receipt.",
        "parameters": {
            "type": "object",
            "properties": {"amount": {"type": "number", "description": "Euros", "money": True}},
            "required": ["amount"],
        },
        "http": {"method": "POST", "url": f"{ground.tools.root}/pay"},
        "effect": "once",
        **more,
    }


async def register(ground: Ground, body: dict[str, object]) -> httpx2.Response:
    return await ground.client.http.post("/v1/tools", json=body)


async def shown(ground: Ground, body: dict[str, object]) -> Json:
    """Register a tool and return it as it was stored."""
    made = await register(ground, body)
    assert made.status_code == HTTPStatus.CREATED, made.text
    return dict((await ground.client.http.get(f"/v1/tools/{body['name']}")).json())


async def test_money_needs_approval_unless_never_was_said(ground: Ground) -> None:
    made = await register(ground, payment(ground, "pay_default"))
    assert made.json()["tool"]["approval"] == "always"
    assert any("'amount' is money" in line for line in made.json()["lint"]["warnings"])
    assert (await shown(ground, payment(ground, "pay_never", approval="never")))[
        "approval"
    ] == "never"


async def test_what_was_registered_is_shown_and_can_be_put_again(ground: Ground) -> None:
    rule, check = {"when": "args.amount > 100"}, ground.tools.status_check()
    body = payment(ground, "pay_rule", approval=rule, status_check=check)
    tool = await shown(ground, body)
    assert tool["approval"] == rule
    assert tool["status_check"] == {
        "method": "GET",
        "query": None,
        "headers": {},
        "body": None,
        **check,
    }
    again = {key: value for key, value in tool.items() if key not in {"version", "alias"}}
    answer = await ground.client.http.put("/v1/tools/pay_rule", json=again)
    assert answer.status_code == HTTPStatus.OK, answer.text
    assert answer.json()["tool"] == {**tool, "version": 2}


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"approval": {"when": "args.amount >"}}, "/approval/when"),
        ({"approval": {"when": "amount > 1"}}, "/approval/when"),
        ({"approval": "maybe"}, "/approval"),
        ({"status_check": {"url": "http://127.0.0.1/same"}}, "/status_check"),
        ({"status_check": {"url": "http://127.0.0.1/{nope}"}}, "/status_check/url"),
        ({"kind": "client"}, "/http"),
    ],
)
async def test_what_cannot_work_is_refused_with_its_place(
    ground: Ground, more: dict[str, object], pointer: str
) -> None:
    answer = await register(ground, payment(ground, "pay_wrong", **more))
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY, answer.text
    assert pointer in {error["pointer"] for error in answer.json()["errors"]}


async def test_whoever_invokes_a_tool_agrees_to_the_call(ground: Ground) -> None:
    await register(ground, payment(ground, "pay_tried"))
    answer = await ground.client.http.post(
        "/v1/tools/pay_tried/invoke", json={"arguments": {"amount": 5}}
    )
    assert answer.json()["outcome"] == "ok", answer.text
    assert ground.tools.received[-1].arguments == {"amount": 5}


async def test_a_tool_of_the_client_is_registered_and_not_tried_out(ground: Ground) -> None:
    body = payment(ground, "ask_browser", kind="client", approval="never")
    del body["http"]
    tool = await shown(ground, body)
    assert (tool["kind"], tool["http"]) == ("client", None)
    answer = await ground.client.http.post(
        "/v1/tools/ask_browser/invoke", json={"arguments": {"amount": 5}}
    )
    assert answer.status_code == HTTPStatus.CONFLICT
    assert answer.json()["type"] == "/problems/tool-of-client"
