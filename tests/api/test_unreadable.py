"""Sessions whose content does not open here: shown as such, and nothing beside them is hidden."""

import httpx2
import pytest
from typing_extensions import override

from app.runtime.errors import KeyMissing, Tampered
from app.runtime.ports.keys import SessionCipher, WrappedKey
from tests.fakes.api_ports import PlainCipher, PlainKeyring
from tests.fakes.api_world import World

URL = "/v1/sessions"


class TornCipher(PlainCipher):
    """Opens nothing."""

    @override
    def open(self, sealed: bytes, context: bytes) -> bytes:
        del sealed, context
        message = "Sealed bytes do not open."
        raise Tampered(message)


def refuse(monkeypatch: pytest.MonkeyPatch, damaged: str, what: Exception | None) -> None:
    """Let the key of one session not open, or, with None, only its content."""
    unwrap = PlainKeyring.unwrap

    def refusing(ring: PlainKeyring, session_id: str, key: WrappedKey) -> SessionCipher:
        if session_id != damaged:
            return unwrap(ring, session_id, key)
        if what is not None:
            raise what
        return TornCipher()

    monkeypatch.setattr(PlainKeyring, "unwrap", refusing)


@pytest.mark.req("API-12", "STATE-5")
@pytest.mark.parametrize("what", [Tampered("The key does not open."), None])
async def test_damaged_content_is_marked_in_a_list_and_alone(
    client: httpx2.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch, what: Tampered | None
) -> None:
    """As after keys were made anew beside an old database."""
    body = {"task": "a", "metadata": {"a": "b"}}
    damaged, whole = [(await client.post(URL, json=body)).json()["id"] for _ in "12"]
    refuse(monkeypatch, damaged, what)
    listed = await client.get(URL)
    assert listed.status_code == 200
    by_id = {one["id"]: one for one in listed.json()["data"]}
    assert by_id[whole]["metadata"] == {"a": "b"}
    assert "unreadable" not in by_id[whole]
    alone = await client.get(f"{URL}/{damaged}")
    assert (alone.status_code, alone.json()) == (200, by_id[damaged])
    shown = alone.json()
    assert (shown["unreadable"], shown["result"], shown["metadata"]) == (True, None, {})
    assert [name for name, _ in world.observer.lines if name == "http.failed"] == []


@pytest.mark.req("API-12", "STATE-5")
async def test_a_missing_key_hides_one_session_of_a_list_only(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted([(await client.post(URL, json={"task": "a"})).json()["id"] for _ in "12"])
    refuse(monkeypatch, ids[0], KeyMissing("The encryption key 'k2' is not configured."))
    listed = await client.get(URL)
    shown = {one["id"]: one.get("unreadable", False) for one in listed.json()["data"]}
    assert shown == {ids[0]: True, ids[1]: False}
    alone = await client.get(f"{URL}/{ids[0]}")
    assert (alone.status_code, alone.json()["type"]) == (503, "/problems/key-missing")
