"""A decision at the very moment at which the question for it lapses: what was answered is true."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from typing_extensions import override

from app.core.events import ApprovalDecided, Choice
from app.core.faults import Fault, FaultKind
from app.runtime.errors import ToolFailure
from app.runtime.ports.journal import Append, Appended
from app.runtime.ports.tools import ToolRequest
from app.runtime.refusals import Conflict
from app.runtime.sessions.approvals import Approvals, Decided
from tests.fakes.clock import LoopClock
from tests.runtime.scripts import weather
from tests.runtime.world import TENANT, World

pytestmark = pytest.mark.req("TOOL-17")
LATE_US = 5_000_000


class Behind(LoopClock):
    """The clock of an API process that is a few seconds late: it believes that there is time."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__()
        self._clock = clock

    @override
    def now_us(self) -> int:
        return self._clock.now_us() - LATE_US


def late(world: World) -> Approvals:
    return replace(world.approvals, clock=Behind(world.clock))


async def asked(world: World) -> tuple[str, str]:
    """Return a session that waits for an approval: its reminder may have been set already."""

    async def work(request: ToolRequest) -> object:
        if world.tools.delivered[request.spec.name] == 1:
            raise ToolFailure(Fault.of(FaultKind.TIMEOUT, "no answer"))
        return "set"

    world.model.script = weather
    world.tools.behaviours["create_reminder"] = work
    async with world.running():
        session = await world.create()
        await world.until(session, "waiting")
        ((approval,), _) = await world.approvals.pending(TENANT, after=None, limit=1)
    world.clock.stop((approval.expires_at_us - world.clock.now_us()) / 1e6 - 1)
    return session, approval.id


def decisions(world: World, session: str) -> list[Choice]:
    bodies = [event.body for event in world.journal(session)]
    return [body.decision for body in bodies if isinstance(body, ApprovalDecided)]


async def test_one_that_comes_before_the_lapse_is_written_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = world.store.append_batch
    came: list[int] = []

    async def after_a_decision(batch: Sequence[Append]) -> list[Appended]:
        if not came and any(e.type == ApprovalDecided.TYPE for a in batch for e in a.events):
            came.append(0)
            decided = Decided(choice=Choice.APPROVE)
            answer = await late(world).decide(TENANT, approval, decided, None)
            came.append(answer.status)
        return await write(batch)

    session, approval = await asked(world)
    monkeypatch.setattr(world.store, "append_batch", after_a_decision)
    async with world.running(world.node("heir")):
        await world.until(session, "completed")
    assert came == [0, 200]
    assert decisions(world, session) == [Choice.APPROVE]
    assert world.tools.delivered["create_reminder"] == 2


async def test_one_that_comes_after_it_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = world.store.append_batch
    refused: list[str] = []

    async def before_a_decision(batch: Sequence[Append]) -> list[Appended]:
        fates = await write(batch)
        if any(e.type == ApprovalDecided.TYPE for a in batch for e in a.events):
            decided = Decided(choice=Choice.APPROVE)
            with pytest.raises(Conflict) as conflict:
                await late(world).decide(TENANT, approval, decided, None)
            refused.append(conflict.value.slug)
        return fates

    session, approval = await asked(world)
    monkeypatch.setattr(world.store, "append_batch", before_a_decision)
    async with world.running(world.node("heir")):
        await world.moment(session, "approval.decided")
        while not refused:
            await world.store.next_append(1)
    assert refused[0] == "approval-expired"
    assert decisions(world, session)[0] is Choice.EXPIRED
    assert world.tools.delivered["create_reminder"] == 1
