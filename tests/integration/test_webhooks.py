"""Webhooks with real processes: signed, retried, redelivered, and sent again after a kill."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from standardwebhooks.webhooks import Webhook

from tests.integration.client import Client, Json
from tests.integration.stack import Stack, Stacks
from tests.scripted.model import ScriptedModel
from tests.scripted.scripts import SCRIPTS
from tests.tools.support import Seen, Server, raw, serving
from tests.waiting import until

QUICK = {"SUREFOOT_WEBHOOK_TIMEOUT_S": "1"}


@dataclass(slots=True)
class Endpoint:
    """An endpoint: answers with a status, or holds the request until it is let go."""

    server: Server
    status: int = 204
    go: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ids(self) -> list[str]:
        return [seen.headers["webhook-id"] for seen in self.server.seen]


@asynccontextmanager
async def endpoint(*, held: bool = False) -> AsyncIterator[Endpoint]:
    async def handle(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        await made.go.wait()
        writer.write(raw(made.status))

    async with serving(handle) as server:
        made = Endpoint(server)
        if not held:
            made.go.set()
        yield made


@asynccontextmanager
async def answering(stacks: Stacks) -> AsyncIterator[Stack]:
    async with (
        ScriptedModel(SCRIPTS["shop"]) as model,
        stacks.open(model=model.base_url, lease_s=2, env=QUICK) as stack,
    ):
        yield stack


async def register(client: Client, to: Endpoint) -> Json:
    body = {"url": f"{to.server.url}/hook?a=b", "events": ["turn.ended"]}
    return await client.post("/v1/webhooks", body, expect=201)


async def deliveries(client: Client, hook: Json, status: str | None = None) -> list[Json]:
    query = "" if status is None else f"?status={status}"
    found: list[Json] = (await client.get(f"/v1/webhooks/{hook['id']}/deliveries{query}"))["data"]
    return found


async def delivered(client: Client, hook: Json, count: int = 1) -> list[Json]:
    async def all_there() -> bool:
        return len(await deliveries(client, hook, "delivered")) == count

    await until(all_there, timeout_s=60, what="delivered")
    return await deliveries(client, hook)


@pytest.mark.req("API-15")
async def test_two_workers_tell_an_endpoint_once_and_the_library_verifies(stacks: Stacks) -> None:
    async with answering(stacks) as stack, endpoint() as hooked:
        client = stack.client(await stack.start("all"))
        await stack.start("worker")
        hook = await register(client, hooked)
        sessions = [await client.create("how much?") for _ in range(8)]
        for session_id in sessions:
            await client.settled(session_id)
        shown = await delivered(client, hook, 8)
        assert Counter(hooked.ids) == Counter(found["id"] for found in shown)
        for seen in hooked.server.seen:
            message = Webhook(hook["secret"]).verify(seen.body, dict(seen.headers))
            assert (seen.method, seen.target) == ("POST", "/hook?a=b")
            assert message["type"] == "turn.ended"
            data = message["data"]
            last = (await client.events(data["session_id"]))[-1]
            assert (last["seq"], last["at"]) == (data["seq"], message["timestamp"])
            assert data["event"]["result"] == last["data"]["result"]
        assert {s["session_id"] for s in shown} == set(sessions)


@pytest.mark.req("API-15")
async def test_a_worker_killed_between_send_and_bookkeeping(stacks: Stacks) -> None:
    async with answering(stacks) as stack, endpoint(held=True) as hooked:
        client = stack.client(await stack.start("api"))
        worker = await stack.start("worker")
        hook = await register(client, hooked)
        session_id = await client.create("how much?")
        await until(lambda: len(hooked.ids) == 1, timeout_s=60, what="the first attempt")
        worker.kill()
        assert await client.status(session_id) == "completed"
        hooked.go.set()
        await stack.start("worker")
        [shown] = await delivered(client, hook)
        assert hooked.ids == [shown["id"]] * 2
        assert shown["attempts"] == 2


@pytest.mark.req("API-15")
async def test_retried_until_up_whatever_happens_to_the_queue(stacks: Stacks) -> None:
    """Emptying the tables of the queue loses nothing: our rows are the truth."""
    async with answering(stacks) as stack, endpoint() as hooked:
        hooked.status = 503
        client = stack.client(await stack.start("all"))
        hook = await register(client, hooked)
        await client.settled(await client.create("how much?"))
        await until(lambda: bool(hooked.ids), timeout_s=60, what="the first attempt")
        await stack.rows("truncate pgqueuer, pgqueuer_log")
        hooked.status = 200
        [shown] = await delivered(client, hook)
        assert set(hooked.ids) == {shown["id"]}
        assert (shown["attempts"], shown["last_status"]) == (2, 200)
        assert (await client.get(f"/v1/webhooks/{hook['id']}"))["failures"] == 0


@pytest.mark.req("API-15")
async def test_a_dead_letter_is_listed_and_sent_again(stacks: Stacks) -> None:
    async with answering(stacks) as stack, endpoint() as hooked:
        hooked.status = 500
        client = stack.client(await stack.start("all"))
        hook = await register(client, hooked)
        await client.settled(await client.create("how much?"))
        # The days between are skipped: nine attempts have failed, the tenth is due now.
        await stack.rows("update deliveries set attempts = 9, next_at = now()")

        async def dead() -> bool:
            return bool(await deliveries(client, hook, "dead"))

        await until(dead, timeout_s=60, what="a dead letter")
        [shown] = await deliveries(client, hook, "dead")
        assert (shown["attempts"], shown["next_at"]) == (10, None)
        assert shown["last_error"] == "The endpoint answered with HTTP 500."
        hooked.status = 204
        path = f"/v1/webhooks/{hook['id']}/deliveries/{shown['id']}/redeliver"
        again = await client.post(path, expect=202)
        assert (again["id"], again["status"], again["attempts"]) == (shown["id"], "pending", 0)
        await delivered(client, hook)


@pytest.mark.req("API-15")
async def test_an_endpoint_that_hangs_holds_up_nobody_else(stacks: Stacks) -> None:
    async with answering(stacks) as stack, endpoint(held=True) as hung, endpoint() as well:
        client = stack.client(await stack.start("all"))
        dead, alive = await register(client, hung), await register(client, well)
        for _ in range(12):
            await client.create("how much?")
        await delivered(client, alive, 12)
        assert await deliveries(client, dead, "delivered") == []
        assert len(hung.ids) < 12


@pytest.mark.req("API-15")
async def test_an_endpoint_that_is_gone_is_disabled(stacks: Stacks) -> None:
    async with answering(stacks) as stack, endpoint() as hooked:
        hooked.status = 410
        client = stack.client(await stack.start("all"))
        hook = await register(client, hooked)
        await client.settled(await client.create("how much?"))
        path = f"/v1/webhooks/{hook['id']}"

        async def disabled() -> bool:
            return {"enabled": False}.items() <= (await client.get(path)).items()

        await until(disabled, timeout_s=60, what="disabled")
        assert (await client.get(path))["disabled_reason"] == "gone"
        await client.settled(await client.create("how much?"))
        assert [d["status"] for d in await deliveries(client, hook)] == ["dead"]


@pytest.mark.case("C170")
@pytest.mark.req("API-15", "TOOL-16")
async def test_a_redirect_inside_is_not_followed_and_the_run_not_touched(stacks: Stacks) -> None:
    inside = "http://169.254.169.254/latest/meta-data"

    def redirect(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(raw(307, b"the secret of the answer", location=inside))

    async with answering(stacks) as stack, serving(redirect) as server:
        client = stack.client(await stack.start("all"))
        hook = await register(client, Endpoint(server))
        session = await client.settled(await client.create("how much?"))
        assert session["status"] == "completed"
        await until(lambda: bool(server.seen), timeout_s=60, what="the first attempt")

        async def told() -> bool:
            return [found["last_status"] for found in await deliveries(client, hook)] == [307]

        await until(told, what="the attempt's outcome")
        everything = json.dumps(await deliveries(client, hook))
        everything += json.dumps(await client.post(f"/v1/webhooks/{hook['id']}/test"))
        assert "the secret of the answer" not in everything
        assert "that is not followed" in everything
        assert "the secret of the answer" not in stack.processes[0].text()


@pytest.mark.req("API-15", "STATE-7")
async def test_an_endpoint_is_told_of_the_turn_that_a_fork_ends(stacks: Stacks) -> None:
    """Of what happens in the fork from its creation on, and of nothing that it took over."""
    async with answering(stacks) as stack, endpoint() as hooked:
        client = stack.client(await stack.start("all"))
        session = await client.create("how much?")
        await client.settled(session)
        events = await client.events(session)
        await register(client, hooked)
        asked = next(e["seq"] for e in events if e["type"] == "model.requested")
        path = f"/v1/sessions/{session}/fork"
        await client.post(path, {"at_seq": len(events)}, expect=201)
        made = await client.post(path, {"at_seq": asked, "task": "how much?"}, expect=201)
        await client.reached(made["id"], "completed")
        await until(lambda: len(hooked.ids) == 2, timeout_s=60, what="told")
        told = [json.loads(seen.body)["data"] for seen in hooked.server.seen]
        assert {t["session_id"] for t in told} == {made["id"]}
        ended = Counter((t["turn"], t["event"]["status"]) for t in told)
        assert ended == {(1, "cancelled"): 1, (2, "completed"): 1}
