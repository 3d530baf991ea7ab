"""Webhooks over HTTP."""

import httpx2
import pytest

from app.api.shapes.webhooks import DeliveryOut, TriedOut, WebhookOut, WebhookSecretOut
from app.runtime.side.webhook_records import DeliveryStatus, Posted, WebhookDelivery
from app.runtime.telling import EVENTS
from tests.fakes.api_world import World

URL = "/v1/webhooks"
BODY = {"url": "https://a.test/hook", "events": ["turn.ended"]}


async def register(client: httpx2.AsyncClient, **fields: object) -> dict[str, str]:
    answer = await client.post(URL, json={**BODY, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, str] = answer.json()
    return found


@pytest.mark.req("API-15")
async def test_the_life_of_a_webhook(client: httpx2.AsyncClient) -> None:
    made = await register(client, events=[*EVENTS, "turn.ended"], description="ours")
    WebhookSecretOut.model_validate(made)
    assert made["secret"].startswith("whsec_")
    path = f"{URL}/{made['id']}"
    shown = (await client.get(path)).json()
    WebhookOut.model_validate(shown)
    assert {**shown, "secret": made["secret"]} == made
    assert shown["events"] == list(EVENTS)
    changed = await client.put(path, json={**BODY, "enabled": False})
    assert (changed.status_code, changed.json()["enabled"]) == (200, False)
    assert changed.json()["description"] is None
    assert (await client.delete(path)).status_code == 204
    for answer in (
        await client.get(path),
        await client.put(path, json=BODY),
        await client.delete(path),
        await client.post(path + "/rotate"),
        await client.post(path + "/test"),
        await client.get(path + "/deliveries"),
        await client.post(path + "/deliveries/dlv_1/redeliver"),
        await client.get(URL + "/whk_%00"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/webhook-not-found")


async def test_pages_newest_first(client: httpx2.AsyncClient) -> None:
    ids = sorted([(await register(client))["id"] for _ in range(3)], reverse=True)
    first = (await client.get(URL, params={"limit": 2})).json()
    assert [hook["id"] for hook in first["data"]] == ids[:2]
    rest = (await client.get(URL, params={"after": first["next"]})).json()
    assert ([hook["id"] for hook in rest["data"]], rest["next"]) == (ids[2:], None)
    assert (await client.get(URL, params={"after": "x"})).status_code == 400


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"events": []}, "/events"),
        ({"events": ["turn.started"]}, "/events/0"),
        ({"url": ""}, "/url"),
        ({"url": 7}, "/url"),
        ({"secret": "mine"}, "/secret"),
    ],
)
async def test_bad_registrations(
    client: httpx2.AsyncClient, fields: dict[str, object], pointer: str
) -> None:
    answer = await client.post(URL, json={**BODY, **fields})
    assert answer.status_code == 422
    assert [e["pointer"] for e in answer.json()["errors"]] == [pointer]


@pytest.mark.case("C170")
@pytest.mark.req("API-15", "TOOL-16")
async def test_an_address_that_is_closed_is_refused(
    client: httpx2.AsyncClient, world: World
) -> None:
    made = await register(client)
    world.poster.refuses = "is at an address that is closed"
    for answer in (
        await client.post(URL, json=BODY),
        await client.put(f"{URL}/{made['id']}", json=BODY),
    ):
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"pointer": "/url", "message": world.poster.refuses}]
    assert len(world.webhooks.hooks) == 1


@pytest.mark.req("API-11", "API-15")
async def test_the_same_key_registers_once_and_shows_the_secret_again(
    client: httpx2.AsyncClient, world: World
) -> None:
    headers = {"idempotency-key": "k1"}
    answers = [await client.post(URL, json=BODY, headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert len(world.webhooks.hooks) == 1
    path = f"{URL}/{answers[0].json()['id']}/rotate"
    headers = {"idempotency-key": "k2"}
    rotated = [(await client.post(path, headers=headers)).json() for _ in range(2)]
    assert rotated[0] == rotated[1] != answers[0].json()


@pytest.mark.req("API-15")
async def test_both_secrets_sign_after_a_rotation(client: httpx2.AsyncClient, world: World) -> None:
    made = await register(client)
    path = f"{URL}/{made['id']}"
    rotated = (await client.post(path + "/rotate")).json()
    assert rotated["secret"] != made["secret"]
    assert rotated["old_secret_until"] > rotated["updated_at"]
    tried = (await client.post(path + "/test")).json()
    TriedOut.model_validate(tried)
    assert (tried["ok"], tried["status"], tried["error"]) == (True, 204, None)
    [sent] = world.poster.sent
    signed = [f"v1,{hook['secret']}" for hook in (rotated, made)]
    assert sent.headers["webhook-signature"].split(" ") == signed
    assert b'"webhook.ping"' in sent.body


async def test_a_ping_that_fails_is_an_answer(client: httpx2.AsyncClient, world: World) -> None:
    made = await register(client)
    for posted, error in (
        (Posted(500), "The endpoint answered with HTTP 500."),
        (Posted(None, "away"), "away"),
    ):
        world.poster.answer = posted
        answer = await client.post(f"{URL}/{made['id']}/test")
        assert answer.status_code == 200
        assert (answer.json()["ok"], answer.json()["error"]) == (False, error)


@pytest.mark.req("API-15")
async def test_deliveries_are_listed_and_sent_again(
    client: httpx2.AsyncClient, world: World
) -> None:
    made = await register(client)
    for number, status in enumerate(DeliveryStatus):
        await world.webhooks.put(
            WebhookDelivery(
                *(f"dlv_{number:030}", made["id"], "default", "ses_1", 7, 1, "turn.ended"),
                *(status, 10, None, 500, "no", 1_700_000_000_000_000, None),
            )
        )
    path = f"{URL}/{made['id']}/deliveries"
    shown = (await client.get(path)).json()
    assert [d["status"] for d in shown["data"]] == ["dead", "delivered", "pending"]
    DeliveryOut.model_validate(shown["data"][0])
    page = (await client.get(path, params={"limit": 1})).json()
    assert (len(page["data"]), page["next"]) == (1, shown["data"][0]["id"])
    rest = (await client.get(path, params={"after": page["next"]})).json()
    assert rest["data"] == shown["data"][1:]
    [dead] = (await client.get(path, params={"status": "dead"})).json()["data"]
    again = await client.post(f"{path}/{dead['id']}/redeliver")
    assert (again.status_code, again.json()["status"]) == (202, "pending")
    assert again.json()["attempts"] == 0
    missing = await client.post(f"{path}/dlv_0/redeliver")
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/delivery-not-found")
    assert (await client.get(path, params={"status": "lost"})).status_code == 400
