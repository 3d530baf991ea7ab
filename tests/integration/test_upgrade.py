"""A rolling upgrade: processes of two releases over live sessions, and a way back."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.client import Client, Json, Reader
from tests.integration.people import CLIENT_TOOL
from tests.integration.process import Process
from tests.integration.releases import PLENTY, Upgrade, unpack, upgrading
from tests.integration.scripted import SLOW, by_text
from tests.integration.stack import Stacks, seen
from tests.scripted.answers import call, text
from tests.waiting import until

pytestmark = [pytest.mark.req("STATE-4", "OPS-4"), pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = by_text(
    {
        "hello": [text("hi")],
        "and now": [text("now this")],
        "go": [SLOW, text("went")],
        "look": [call("get_weather", city="Oslo", date="today"), text("looked")],
        "pay": [call("pay", amount=5), text("paid")],
        "transfer": [call("transfer", amount=7), text("transferred")],
    }
)
BOUND_S = 90.0


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the release before this one."""
    return unpack(tmp_path_factory.mktemp("older"))


@dataclass(slots=True)
class Story:
    """Sessions that live through an upgrade, by name, and who reads them meanwhile."""

    upgrade: Upgrade
    group: asyncio.TaskGroup
    sessions: dict[str, str] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)

    @property
    def before(self) -> Client:
        """The API of the older release."""
        return self.upgrade.before

    async def create(self, name: str, client: Client, task: str) -> str:
        self.sessions[name] = await client.create(task, limits=PLENTY)
        return self.sessions[name]

    async def completed(self, client: Client, name: str, *, turn: int = 1) -> str:
        """Return what a session said at the end of a turn, as one API shows it."""
        session_id = self.sessions[name]
        await _completed(client, session_id, turn)
        return str((await client.session(session_id))["result"]["text"])

    def read(self, name: str, client: Client) -> None:
        """Read a session live over one API, to its end."""
        reader = Reader(self.sessions[name], lambda: [client.url])
        self.readers[f"{name} over {client.url}"] = reader
        self.group.create_task(reader.run(timeout_s=2 * BOUND_S))

    async def older_alone(self) -> Process:
        """A payment is cut in the middle, a question is answered, a slow call is under way."""
        slow = self.upgrade.tools.hold_before("slow")
        paying = self.upgrade.tools.hold_after("pay")
        lost = await self.upgrade.older()
        payment = await self.create("payment", self.before, "pay")
        await paying.reached()
        lost.kill()
        paying.release()
        worker = await self.upgrade.older(SUREFOOT_WORKER_SLOTS="2")
        await self.create("answered", self.before, "hello")
        assert await self.completed(self.before, "answered") == "hi"
        await self.before.reached(payment, "waiting", timeout_s=BOUND_S)
        await self.create("running", self.before, "go")
        self.read("running", self.before)
        await slow.reached()
        return worker

    async def schema_moves(self) -> None:
        """The older release goes on, and takes new work until its slots are full."""
        looking = self.upgrade.tools.hold_before("get_weather")
        await self.upgrade.migrate()
        await self.create("during", self.before, "hello")
        assert await self.completed(self.before, "during") == "hi"
        await self.create("steered", self.before, "look")
        await looking.reached()
        await self.create("queued", self.before, "hello")
        assert await self.before.status(self.sessions["queued"]) == "queued"

    async def newer_beside(self, now: Client) -> Json:
        """This release takes what is due; a new kind of event is told by the older one too."""
        self.read("running", now)
        await self.completed(self.before, "queued")
        await now.register(_transfer(self.upgrade))
        asked = await self.create("approved", now, "transfer")
        pending = (await now.reached(asked, "waiting", timeout_s=BOUND_S))["pending"]
        assert (await self.before.session(asked))["pending"] == pending
        self.read("approved", self.before)
        approval: Json = pending["approvals"][0]
        return approval

    async def steered(self, now: Client) -> None:
        """A message to what the older one runs is answered, if not in the turn it was meant for."""
        body = {"text": "and now", "when_busy": "steer"}
        session_id = self.sessions["steered"]
        await now.post(f"/v1/sessions/{session_id}/messages", body, expect=202)

        async def received() -> bool:
            return "message.received" in seen(await now.events(session_id))

        await until(received, timeout_s=BOUND_S, what="the older worker has the message")
        self.upgrade.tools.hold_before("get_weather").release()
        assert await self.completed(self.before, "steered", turn=2) == "now this"

    async def taken_over(self, now: Client, approval: Json) -> None:
        """This release goes on with everything that the older one left, as asked over either."""
        tools, before = self.upgrade.tools, self.before
        async with asyncio.timeout(BOUND_S):
            while sum(d.tool == "slow" for d in tools.received) < 2:
                await tools.called(len(tools.received) + 1)
        tools.hold_before("slow").release()
        assert await self.completed(now, "running") == "went"
        await before.verify(self.sessions["payment"], "t1_c1_1", "happened")
        assert await self.completed(before, "payment") == "paid"
        await before.post(f"/v1/sessions/{self.sessions['answered']}/messages", {"text": "and now"})
        assert await self.completed(now, "answered", turn=2) == "now this"
        await now.post(f"/v1/approvals/{approval['id']}", {"decision": "approve"}, expect=200)
        assert await self.completed(before, "approved") == "transferred"


def _transfer(upgrade: Upgrade) -> Json:
    """Return a tool that an older release must not call: each call needs an approval."""
    pay = next(spec for spec in upgrade.tools.specs() if spec["name"] == "pay")
    return {**pay, "name": "transfer", "approval": "always"}


async def _completed(client: Client, session_id: str, turn: int) -> None:
    async def completed() -> bool:
        shown = await client.session(session_id)
        return bool(shown["status"] == "completed" and shown["turn"] == turn)

    await until(completed, timeout_s=BOUND_S, what=f"{session_id} has completed turn {turn}")


async def _told_alike(session_id: str, *clients: Client) -> None:
    """Check that both releases tell a session alike, whole and without a gap."""
    events = await clients[0].events(session_id)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    counts = Counter(seen(events))
    assert counts["turn.started"] == counts["turn.ended"]
    for client in clients:
        assert await client.events(session_id) == events
        reader = Reader(session_id, lambda client=client: [client.url])  # type: ignore[misc]
        await reader.run()
        assert [frame.data for frame in reader.durable] == events


@pytest.mark.req("TOOL-10", "TOOL-17", "API-7")
async def test_live_sessions_go_through_a_rolling_upgrade(stacks: Stacks, older: Path) -> None:
    async with upgrading(stacks, SCRIPT, older) as upgrade, asyncio.TaskGroup() as group:
        story = Story(upgrade, group)
        first = await story.older_alone()
        await story.schema_moves()
        now, second = await upgrade.newer()
        approval = await story.newer_beside(now)
        await story.steered(now)
        first.kill()
        await story.taken_over(now, approval)
        ran = {name: await upgrade.ran_by(s) for name, s in story.sessions.items()}
        of_one, of_other = [first.worker], [second.worker]
        assert ran["during"] == ran["steered"] == of_one
        assert set(ran["queued"]) == set(ran["approved"]) == set(of_other)
        assert ran["running"] == ran["answered"] == of_one + of_other
        assert set(ran["payment"][1:-1]) == set(of_one)
        assert ran["payment"][-1:] == of_other
        versions = {name: await upgrade.min_version(s) for name, s in story.sessions.items()}
        assert {name for name, v in versions.items() if v == 1} == {"during", "steered"}
        for session_id in story.sessions.values():
            await _told_alike(session_id, upgrade.before, now)
        await upgrade.asked_again(1)
    assert set(upgrade.ready) == {200}
    for name, reader in story.readers.items():
        assert reader.durable[-1].type == "turn.ended", name
        numbers = [frame.seq for frame in reader.durable]
        assert numbers == list(range(1, len(numbers) + 1)), name
    made = Counter((d.tool, d.key) for d in upgrade.tools.received)
    times = sorted((tool, n) for (tool, _), n in made.items())
    # The payment and the transfer, which another tool makes at the same address; `slow` is a read.
    assert times == [("get_weather", 1), ("pay", 1), ("pay", 1), ("slow", 2)]


async def _run_by_older(upgrade: Upgrade, task: str) -> Json:
    """Return a session of the older API that the older worker has run to its end."""
    session_id = await upgrade.before.create(task)
    shown = await upgrade.before.reached(session_id, "completed", timeout_s=BOUND_S)
    assert await upgrade.min_version(session_id) == 1
    return shown


async def _created(client: Client, key: str) -> str:
    """Return the session that this key creates, whoever was asked first."""
    headers = {"idempotency-key": key}
    answer = await client.http.post("/v1/sessions", json={"task": "hello"}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.req("API-11", "TOOL-17")
async def test_the_older_release_leaves_alone_what_it_cannot_read(
    stacks: Stacks, older: Path
) -> None:
    """Also the way back: the newer processes end, the older ones serve on, nothing is lost."""
    async with upgrading(stacks, SCRIPT, older) as upgrade:
        before, slow = upgrade.before, upgrade.tools.hold_before("slow")
        await upgrade.migrate()
        now, worker = await upgrade.newer()
        for key in ("once", '"quoted"'):
            assert await _created(before, key) == await _created(now, key)
        await now.register(_transfer(upgrade), CLIENT_TOOL)
        running = await now.create("go", limits=PLENTY)
        await slow.reached()
        worker.kill()
        await upgrade.stack.lease_over(worker)
        waiting = await now.create("transfer")
        await upgrade.older()
        # Both are due, and were so before each of these, which the older worker does run.
        for task in ("hello", "look", "pay"):
            shown = await _run_by_older(upgrade, task)
            assert not {"transfer", "ask_device"} & set(shown["tools"])
        assert [await upgrade.stack.owner(s) for s in (running, waiting)] == [worker.worker, None]
        assert (await before.session(waiting))["status"] == "queued"
        listed = {tool["name"]: tool for tool in (await before.get("/v1/tools"))["data"]}
        assert not listed["transfer"]["enabled"]
        assert not listed["ask_device"]["enabled"]
        body = {"task": "transfer", "tools": ["transfer"]}
        assert (await before.http.post("/v1/sessions", json=body)).status_code == 422
        body = {"text": "and now", "when_busy": "enqueue"}
        await before.post(f"/v1/sessions/{running}/messages", body, expect=202)
        await upgrade.stack.start("worker")
        slow.release()
        assert (await now.reached(waiting, "waiting", timeout_s=BOUND_S))["pending"]["approvals"]
        await _completed(now, running, 2)
        assert [d.arguments for d in upgrade.tools.received if d.tool == "pay"] == [{"amount": 5}]


def test_without_the_history_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="full\nclone"):
        unpack(tmp_path, "0" * 40)
