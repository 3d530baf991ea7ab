"""Schedules over HTTP."""

import httpx2
import pytest

from tests.api.conftest import create
from tests.fakes.api_world import World

Body = dict[str, object]
DAILY: Body = {
    "name": "report",
    "cron": "0 9 * * 1-5",
    "timezone": "Europe/Berlin",
    "session": {
        "task": "Write the report",
        "metadata": {"team": "ops"},
        "on_disconnect": "continue",
    },
}


async def made(client: httpx2.AsyncClient, **fields: object) -> Body:
    answer = await client.post("/v1/schedules", json={**DAILY, **fields})
    assert answer.status_code == 201, answer.text
    shown: Body = answer.json()
    assert answer.headers["location"] == f"/v1/schedules/{shown['id']}"
    return shown


@pytest.mark.req("API-16")
async def test_the_life_of_a_schedule(client: httpx2.AsyncClient, world: World) -> None:
    shown = await made(client)
    path = f"/v1/schedules/{shown['id']}"
    assert {name: shown[name] for name in DAILY} == DAILY
    assert (shown["missed"], shown["paused"], shown["version"]) == ("once", False, 1)
    assert shown["next_at"] is not None
    assert (await client.get(path)).json() == shown
    assert (await client.get("/v1/schedules")).json() == {"data": [shown], "next": None}
    paused = await client.post(path + "/pause")
    assert (paused.status_code, paused.json()["next_at"]) == (200, None)
    resumed = (await client.post(path + "/resume")).json()
    assert (resumed["paused"], resumed["next_at"]) == (False, shown["next_at"])
    body = {**DAILY, "cron": "*/5 * * * *", "missed": "all"}
    changed = await client.put(path, json=body)
    assert (changed.status_code, changed.json()["missed"]) == (200, "all")
    assert changed.json()["next_at"] != shown["next_at"]
    fired = await client.post(path + "/fire")
    assert fired.status_code == 201
    marks = {"surefoot.schedule": shown["id"], "team": "ops"}
    assert fired.json()["metadata"].items() >= marks.items()
    assert list(world.store.rows) == [fired.json()["id"]]
    runs = (await client.get(path + "/runs")).json()
    assert [(r["outcome"], r["by_hand"], r["session_id"]) for r in runs["data"]] == [
        ("fired", True, fired.json()["id"])
    ]
    after = (await client.get(path)).json()
    assert after["last_session_id"] == fired.json()["id"]
    assert (await client.delete(path)).status_code == 204
    for answer in (
        await client.get(path),
        await client.delete(path),
        await client.put(path, json=DAILY),
        await client.post(path + "/fire"),
        await client.get("/v1/schedules/ses_1"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (
            404,
            "/problems/schedule-not-found",
        )


async def test_pages(client: httpx2.AsyncClient) -> None:
    ids = sorted([str((await made(client))["id"]) for _ in range(3)], reverse=True)
    first = (await client.get("/v1/schedules?limit=2")).json()
    assert ([s["id"] for s in first["data"]], first["next"]) == (ids[:2], ids[1])
    rest = (await client.get(f"/v1/schedules?limit=2&after={first['next']}")).json()
    assert ([s["id"] for s in rest["data"]], rest["next"]) == (ids[2:], None)
    assert (await client.get("/v1/schedules?after=x")).status_code == 400


@pytest.mark.req("API-11")
async def test_keys_on_each_post(client: httpx2.AsyncClient, world: World) -> None:
    key = {"Idempotency-Key": "a"}
    tries = [await client.post("/v1/schedules", json=DAILY, headers=key) for _ in range(2)]
    assert tries[0].json() == tries[1].json()
    assert tries[1].headers["idempotency-replayed"] == "true"
    assert len(world.schedules.rows) == 1
    other = await client.post("/v1/schedules", json={**DAILY, "name": "b"}, headers=key)
    assert other.json()["type"] == "/problems/idempotency-key-reused"
    path = f"/v1/schedules/{tries[0].json()['id']}"
    for verb in ("pause", "resume", "fire"):
        key = {"Idempotency-Key": verb}
        answers = [await client.post(f"{path}/{verb}", headers=key) for _ in range(2)]
        assert answers[0].content == answers[1].content, verb
        assert answers[1].headers["idempotency-replayed"] == "true"
    assert len(world.store.rows) == 1
    assert world.schedules.rows[tries[0].json()["id"]].version == 3


@pytest.mark.req("API-16")
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"cron": None}, ""),
        ({"at": "2030-01-01T00:00:00Z"}, ""),
        ({"session": None}, ""),
        ({"session_id": "ses_1", "message": "a"}, ""),
        ({"message": "a"}, ""),
        ({"session": None, "session_id": "ses_1"}, ""),
        ({"cron": "0 0 30 2 *"}, "/cron"),
        ({"cron": "* * * * * *"}, "/cron"),
        ({"cron": None, "at": "2001-01-01T00:00:00Z"}, "/at"),
        ({"cron": None, "at": "soon"}, "/at"),
        ({"timezone": "Mars/Olympus"}, "/timezone"),
        ({"timezone": "localtime"}, "/timezone"),
        ({"timezone": "right/Europe/Berlin"}, "/timezone"),
        ({"missed": "never"}, "/missed"),
        ({"session": {"task": ""}}, "/session/task"),
        ({"session": {"task": "a", "model": "none"}}, "/session/model"),
        ({"session": {"task": "a", "tools": ["none"]}}, "/session/tools/0"),
        ({"session": {"task": "a", "limits": {"max_steps": 0}}}, "/session/limits/max_steps"),
        ({"session": {"task": "a", "mode": "workflow"}}, "/session/mode"),
        ({"session": None, "session_id": "ses_1", "message": "a"}, "/session_id"),
        ({"colour": "red"}, "/colour"),
    ],
)
async def test_what_is_refused(client: httpx2.AsyncClient, fields: Body, pointer: str) -> None:
    body = {name: value for name, value in {**DAILY, **fields}.items() if value is not None}
    answer = await client.post("/v1/schedules", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert (await client.get("/v1/schedules")).json()["data"] == []


async def test_speaking_to_a_session(client: httpx2.AsyncClient, world: World) -> None:
    session_id = await create(client)
    told = {"session": None, "session_id": session_id, "message": "Go on"}
    body = {name: value for name, value in {**DAILY, **told}.items() if value is not None}
    shown = (await client.post("/v1/schedules", json=body)).json()
    assert (shown["session_id"], shown["message"], shown["when_busy"]) == (
        session_id,
        "Go on",
        "enqueue",
    )
    fired = await client.post(f"/v1/schedules/{shown['id']}/fire")
    assert (fired.status_code, fired.json()["receipt"]) == (202, "enqueued")
    assert len(world.store.inboxes[session_id]) == 1


@pytest.mark.req("STATE-9")
async def test_erasing_a_session(client: httpx2.AsyncClient, world: World) -> None:
    key = {"Idempotency-Key": "mine"}
    task = {"task": "secret", "metadata": {"who": "me"}}
    created = await client.post("/v1/sessions", json=task, headers=key)
    session_id = created.json()["id"]
    path = f"/v1/sessions/{session_id}"
    await world.finish(session_id, "the secret is out")
    chain = [(e.seq, e.hash) for e in world.store.events[session_id]]
    for _ in range(2):
        assert (await client.delete(path)).status_code == 204
    shown = (await client.get(path)).json()
    assert (shown["erased"], shown["result"], shown["metadata"]) == (True, None, {})
    assert shown["status"] == "completed"
    assert [(e.seq, e.hash) for e in world.store.events[session_id]] == chain
    for answer in (
        await client.post("/v1/sessions", json=task, headers=key),
        await client.post("/v1/sessions", json={"task": "other"}, headers=key),
        await client.post(path + "/messages", json={"text": "hello"}),
        await client.get(path + "/events"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/session-erased")
    for verb in ("cancel", "close", "close"):
        settled = await client.post(f"{path}/{verb}")
        assert (settled.status_code, settled.json()) == (200, shown)
    assert (await client.delete("/v1/sessions/ses_none")).status_code == 404
