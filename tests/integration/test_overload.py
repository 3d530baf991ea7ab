"""More than there is room for: new work is refused in words, and what is there goes on."""

import asyncio
import time
from collections import Counter

import httpx2
import pytest

from tests.integration.client import Client
from tests.integration.raw import RawReader, idle_connections, many_files
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, held, text
from tests.scripted.history import Body
from tests.scripted.http import Hold
from tests.scripted.model import ScriptedModel
from tests.waiting import until

pytestmark = pytest.mark.alone

STREAMS = 1000
SESSIONS = 50
FLOOD = 40
FLOOD_S = 4.0
P99_S = 1.0
"""On an idle machine of two cores it is a tenth of that."""


class Gate:
    """A model that answers `hello` at once and everything else when it is let."""

    def __init__(self) -> None:
        self.hold = Hold()

    def __call__(self, request: Body, _n: int) -> Answer:
        said = str(request["messages"][-1]["content"])
        return text("hi") if said == "hello" else held(self.hold, text("done"))


async def refused(client: Client, path: str, body: object) -> httpx2.Response:
    """Return the refusal; it says when to come back."""
    answer = await client.http.post(path, json=body)
    assert (answer.status_code, answer.json()["type"]) == (429, "/problems/overloaded"), answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert "SUREFOOT_MAX_QUEUED" in answer.json()["detail"]
    return answer


@pytest.mark.req("SAFE-5", "OPS-4")
async def test_past_the_bound_of_the_queue_nothing_is_started(stacks: Stacks) -> None:
    gate, most = Gate(), 20
    async with (
        ScriptedModel(gate) as model,
        stacks.open(model=model.base_url, env={"SUREFOOT_MAX_QUEUED": str(most)}) as stack,
    ):
        apis = [stack.client(await stack.start("api")) for _ in range(2)]
        await stack.start("worker", env={"SUREFOOT_WORKER_SLOTS": "1"})
        done = await apis[0].create("hello")
        await apis[0].settled(done)
        running = await apis[0].create("go")
        await apis[0].reached(running, "running")
        queued = [await apis[0].create("go") for _ in range(most)]
        await refused(apis[0], "/v1/sessions", {"task": "one too many"})
        await refused(apis[0], f"/v1/sessions/{done}/messages", {"text": "go"})
        assert len(await stack.rows("select 1 from sessions")) == most + 2
        await _refuses_soon(apis[1])
        # What is not new work is taken: looks, streams, messages to what runs, cancels.
        assert await apis[1].status(queued[0]) == "queued"
        async with apis[1].stream(queued[0]) as frames:
            assert frames is not None
        path = f"/v1/sessions/{running}/messages"
        await apis[0].post(path, {"text": "hello", "when_busy": "enqueue"}, expect=202)
        gate.hold.release()
        for session_id in (running, *queued):
            await apis[0].reached(session_id, "completed")
        for api in apis:
            await until(lambda api=api: _takes(api), what="there is room again")  # type: ignore[misc]


async def _refuses_soon(client: Client) -> None:
    """Another process has taken none of them, and counts each second."""

    async def so() -> bool:
        return (await client.http.post("/v1/sessions", json={"task": "hello"})).status_code == 429

    await until(so)


async def _takes(client: Client) -> bool:
    return (await client.http.post("/v1/sessions", json={"task": "hello"})).status_code == 201


@pytest.mark.slow
@pytest.mark.req("SAFE-5", "OPS-5")
async def test_looks_streams_and_health_stay_quick_in_a_flood(stacks: Stacks) -> None:
    gate = Gate()
    async with (
        ScriptedModel(gate) as model,
        stacks.open(model=model.base_url, env={"SUREFOOT_MAX_QUEUED": "100"}, lease_s=15) as stack,
    ):
        api = await stack.start("api")
        client = stack.client(api)
        await stack.start("worker", env={"SUREFOOT_WORKER_SLOTS": "8"})
        watched = await client.create("hello")
        await client.settled(watched)
        answers = Counter[int]()
        over = asyncio.Event()
        took: dict[str, list[float]] = {}
        async with asyncio.TaskGroup() as group:
            for _ in range(FLOOD):
                group.create_task(_flood(stack.client(api), answers, over))
            await until(lambda: answers[429] > 0, timeout_s=60, what="the queue is full")
            ended = time.monotonic() + FLOOD_S
            while time.monotonic() < ended:
                for path in (
                    f"/v1/sessions/{watched}",
                    f"/v1/sessions/{watched}/events",
                    f"/v1/sessions/{watched}/stream",
                    "/healthz",
                    "/readyz",
                ):
                    began = time.monotonic()
                    answer = await client.http.get(path)
                    took.setdefault(path.rpartition("/")[2], []).append(time.monotonic() - began)
                    assert answer.is_success, answer.text
            over.set()
        gate.hold.release()
        worst = {name: sorted(times)[int(len(times) * 0.99)] for name, times in took.items()}
        print({name: f"{s * 1000:.0f} ms" for name, s in worst.items()}, dict(answers))
        assert max(worst.values()) < P99_S
        assert set(answers) == {201, 429}


async def _flood(client: Client, answers: Counter[int], over: asyncio.Event) -> None:
    while not over.is_set():
        answer = await client.http.post("/v1/sessions", json={"task": "go"})
        answers[answer.status_code] += 1


@pytest.mark.slow
@pytest.mark.req("API-3")
async def test_a_thousand_streams_in_one_process(stacks: Stacks) -> None:
    """Each gets every event of its session; one more is refused until one has left."""
    many_files()
    gate = Gate()
    async with (
        ScriptedModel(gate) as model,
        stacks.open(model=model.base_url, lease_s=15) as stack,
    ):
        api = await stack.start("api", env={"SUREFOOT_MAX_STREAMS": str(STREAMS)})
        await stack.start("worker")
        client = stack.client(api)
        ids = [await client.create("go") for _ in range(SESSIONS)]
        readers = [RawReader() for _ in range(STREAMS)]
        paths = [f"/v1/sessions/{ids[n % SESSIONS]}/stream" for n in range(STREAMS)]
        async with asyncio.TaskGroup() as group:
            for reader, path in zip(readers, paths, strict=True):
                group.create_task(reader.open(api.url, path))
        assert {reader.status for reader in readers} == {200}
        one_more = await client.http.get(paths[0])
        assert (one_more.status_code, one_more.json()["type"]) == (
            503,
            "/problems/too-many-streams",
        )
        assert one_more.headers["retry-after"]
        create = {"headers": {"accept": "text/event-stream"}, "json": {"task": "hello"}}
        refused = await client.http.post("/v1/sessions", **create)  # type: ignore[arg-type]
        assert refused.status_code == 503
        assert len(await stack.rows("select 1 from sessions")) == SESSIONS
        assert (await client.http.get("/healthz")).status_code == 200
        readers.pop().close()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.read("turn.ended"))
            gate.hold.release()
        heads = {i: len(await client.events(i)) for i in ids}
        for reader, path in zip(readers, paths, strict=False):
            assert reader.seqs == list(range(1, heads[path.split("/")[3]] + 1))
            reader.close()
        async with asyncio.timeout(60), client.stream(ids[0], last_id=0) as frames:
            assert frames is not None


@pytest.mark.req("SAFE-5", "OPS-5")
async def test_past_the_bound_of_connections_each_is_told_so(stacks: Stacks) -> None:
    most, gate = 16, Gate()
    async with ScriptedModel(gate) as model, stacks.open(model=model.base_url) as stack:
        api = await stack.start("api", env={"SUREFOOT_MAX_CONNECTIONS": str(most)})
        await stack.start("worker")
        async with httpx2.AsyncClient(base_url=api.url) as first:
            made = (await first.post("/v1/sessions", json={"task": "go"})).json()
        reader = RawReader()
        await reader.open(api.url, f"/v1/sessions/{made['id']}/stream")
        async with (
            idle_connections(api.url, most),
            httpx2.AsyncClient(base_url=api.url) as client,
        ):
            full = await client.get("/v1/models")
            assert (full.status_code, full.json()["type"]) == (
                503,
                "/problems/too-many-connections",
            )
            assert (full.headers["connection"], full.headers["retry-after"]) == ("close", "2")
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await client.get(path)).status_code == 200, path
            gate.hold.release()
            async with asyncio.timeout(60):
                await reader.read("turn.ended")  # who was there is not disturbed
            reader.close()

        async def room() -> bool:
            async with httpx2.AsyncClient(base_url=api.url) as client:
                return (await client.get("/v1/models")).status_code == 200

        await until(room, what="there is room again")


@pytest.mark.slow
@pytest.mark.case("C122")
@pytest.mark.req("API-3", "OPS-4")
async def test_open_streams_hold_no_connection_to_the_database(stacks: Stacks) -> None:
    """A pool of five, fifty streams of runs that take long, fifty of sessions that rest."""
    gate, pool = Gate(), 5
    async with (
        ScriptedModel(gate) as model,
        stacks.open(
            model=model.base_url, lease_s=15, env={"SUREFOOT_POOL_SIZE": str(pool)}
        ) as stack,
    ):
        api = await stack.start("api")
        await stack.start("worker")
        client = stack.client(api)
        slow = [await client.create("go") for _ in range(50)]
        rest = [await client.create("hello") for _ in range(50)]
        for session_id in rest:
            await client.reached(session_id, "completed")
        readers = [RawReader() for _ in range(100)]
        ways = [f"/v1/sessions/{i}/stream" for i in slow]
        ways += [f"/v1/sessions/{i}/stream?follow=session" for i in rest]
        for reader, path in zip(readers, ways, strict=True):
            await reader.open(api.url, path)
        took: list[float] = []
        for n in range(200):
            began = time.monotonic()
            await client.session((slow + rest)[n % 100])
            took.append(time.monotonic() - began)
        assert sorted(took)[198] < P99_S
        rows = await stack.rows(
            "select state, count(*) as n from pg_stat_activity where datname = current_database()"
            " and application_name = 'surefoot' group by state"
        )
        states = {row["state"]: row["n"] for row in rows}
        assert sum(states.values()) <= 2 * pool
        assert states.get("active", 0) <= 2
        assert "idle in transaction" not in states
        gate.hold.release()
        async with asyncio.timeout(60):
            for reader in readers[:50]:
                await reader.read("turn.ended")
        for reader in readers:
            reader.close()
