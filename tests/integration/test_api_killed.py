"""kill -9 of an API process while it takes a request; the client asks again under its key."""

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.scripted import by_text
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import text
from tests.scripted.model import ScriptedModel

SCRIPT = by_text({"go": [text("done")], "hello": [text("hi")]})


async def _post(client: Client, path: str, body: object) -> httpx2.Response:
    return await client.http.post(path, json=body, headers={"Idempotency-Key": "the-same"})


@pytest.mark.case("C051")
@pytest.mark.req("API-11", "API-1", "STATE-1")
@pytest.mark.parametrize("point", ["create:1:before", "create:1:after", "nudge:1:before"])
async def test_a_session_is_made_once(stacks: Stacks, point: str) -> None:
    async with ScriptedModel(SCRIPT) as model, stacks.open(model=model.base_url) as stack:
        first = stack.client(await stack.start("api", point=point))
        second = stack.client(await stack.start("all"))
        with pytest.raises(httpx2.TransportError):
            await _post(first, "/v1/sessions", {"task": "go"})
        made = await _post(second, "/v1/sessions", {"task": "go"})
        assert made.status_code == 201, made.text
        session = await second.settled(made.json()["id"])
        assert session["status"] == "completed"
        listed = await second.get("/v1/sessions")
        assert [s["id"] for s in listed["data"]] == [session["id"]]
        assert model.count == 1


@pytest.mark.case("C051")
@pytest.mark.req("API-11", "API-7", "STATE-1")
async def test_a_message_is_taken_once(stacks: Stacks) -> None:
    """The API dies when the message is committed and nobody was told of it."""
    async with ScriptedModel(SCRIPT) as model, stacks.open(model=model.base_url) as stack:
        second = stack.client(await stack.start("all"))
        session_id = await second.create("go")
        await second.settled(session_id)
        first = stack.client(await stack.start("api", point="nudge:1:before"))
        path = f"/v1/sessions/{session_id}/messages"
        with pytest.raises(httpx2.TransportError):
            await _post(first, path, {"text": "hello"})
        again = await _post(second, path, {"text": "hello"})
        assert (again.status_code, again.json()["receipt"]) == (202, "started")
        session = await second.reached(session_id, "completed")
        assert (session["turn"], session["result"]["text"]) == (2, "hi")
        events = await second.events(session_id)
        assert seen(events).count("message.received") == 1
        assert model.count == 2
