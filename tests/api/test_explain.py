"""What looks into sessions, on fakes: shapes, bounds, and content that cannot be read."""

import httpx2
import pytest

from app.api.shapes.explaining import ChainList, ExplanationOut, ReplayOut, RequestOut, StateOut
from app.core.events import ModelRequested, PhaseEntered, PromptRef, Purpose
from app.core.lifecycle import Phase
from app.runtime.errors import KeyMissing, Tampered
from app.runtime.explaining import inquiry
from tests.api.test_unreadable import refuse
from tests.fakes.api_world import World

URL = "/v1/sessions"
ASKED = (
    PhaseEntered(None, Phase.OBSERVE),
    PhaseEntered(Phase.OBSERVE, Phase.THINK),
)


async def made(client: httpx2.AsyncClient) -> str:
    session_id: str = (await client.post(URL, json={"task": "a"})).json()["id"]
    return session_id


def request(prompt_version: int = 1) -> ModelRequested:
    prompt = PromptRef("agent", prompt_version, "0" * 64, 10)
    return ModelRequested("m", Purpose.STEP, "0" * 64, 2, 10, ("calculate",), prompt)


async def test_answers_are_as_described(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await made(client)
    await world.append(session_id, *ASKED, request())
    path = f"{URL}/{session_id}"
    StateOut.model_validate((await client.get(f"{path}/state")).json())
    ExplanationOut.model_validate((await client.get(f"{path}/why")).json())
    ChainList.model_validate((await client.get("/v1/audit/verify")).json())
    shown = (await client.get(f"{path}/messages")).json()
    RequestOut.model_validate(shown)
    assert shown["messages"][0] == {"role": "system", "content": "You are the agent."}
    assert shown["messages"][1] == {"role": "user", "content": "a"}
    assert (shown["seq"], shown["intact"], shown["tools"]) == (5, False, ["calculate"])
    diverged = (await client.post(f"{path}/replay")).json()
    ReplayOut.model_validate(diverged)
    assert (diverged["identical"], diverged["seq"]) == (False, 3)
    assert diverged["actual"]["type"] == "phase.entered"


async def test_a_prompt_that_is_here_no_longer_is_left_out(
    client: httpx2.AsyncClient, world: World
) -> None:
    session_id = await made(client)
    await world.append(session_id, *ASKED, request(prompt_version=9))
    shown = (await client.get(f"{URL}/{session_id}/messages")).json()
    assert [m["role"] for m in shown["messages"]] == ["user"]
    assert shown["prompt"]["version"] == 9


async def test_a_journal_that_is_too_long_is_refused(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await made(client)
    monkeypatch.setattr(inquiry, "MOST_EVENTS", 1)
    refused = await client.get(f"{URL}/{session_id}/state")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/journal-too-long")
    assert (await client.get(f"{URL}/{session_id}/state?at_seq=1")).status_code == 200
    assert "looks at 1 at most" in (await client.get(f"{URL}/{session_id}/why")).text


@pytest.mark.req("API-12")
@pytest.mark.parametrize("what", [Tampered("The key does not open."), None])
async def test_content_that_does_not_open_is_a_conflict(
    client: httpx2.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, what: Tampered | None
) -> None:
    session_id = await made(client)
    refuse(monkeypatch, session_id, what)
    for path in ("state", "messages", "events"):
        refused = await client.get(f"{URL}/{session_id}/{path}")
        found = refused.status_code, refused.json()["type"]
        assert found == (409, "/problems/session-unreadable")
    replayed = await client.post(f"{URL}/{session_id}/replay", headers={"Idempotency-Key": "k"})
    again = await client.post(f"{URL}/{session_id}/replay", headers={"Idempotency-Key": "k"})
    assert replayed.status_code == again.status_code == 409
    assert "does not open" in " ".join(
        (await client.get(f"{URL}/{session_id}/why")).json()["doing"]
    )
    (chain,) = (await client.get("/v1/audit/verify")).json()["data"]
    assert (chain["intact"], chain["broken"]["fault"]) == (False, "sealed")
    assert [name for name, _ in world.observer.lines if name == "http.failed"] == []


async def test_a_missing_key_leaves_a_chain_unverified(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await made(client)
    refuse(monkeypatch, session_id, KeyMissing("The encryption key 'k2' is not configured."))
    shown = (await client.get("/v1/audit/verify")).json()
    assert shown["intact"] is False
    assert shown["data"][0]["intact"] is None
    assert "k2" in shown["data"][0]["unverified"]
    assert "k2" in (await client.get(f"{URL}/{session_id}/why")).text
    assert (await client.get(f"{URL}/{session_id}/state")).status_code == 503


async def test_bad_parameters_are_named(client: httpx2.AsyncClient) -> None:
    session_id = await made(client)
    for path, pointer, status in (
        (f"{URL}/{session_id}/state?at_seq=x", "/query/at_seq", 400),
        (f"{URL}/{session_id}/state?at_seq=3", "/query/at_seq", 422),
        ("/v1/audit/verify?limit=0", "/query/limit", 400),
        ("/v1/audit/verify?after=1", "/query/after", 400),
    ):
        refused = await client.get(path)
        assert refused.status_code == status
        assert refused.json()["errors"][0]["pointer"] == pointer
