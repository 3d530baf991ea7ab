"""What users do beside their sessions: schedules, webhooks, requests twice under one key."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from typing_extensions import override

from app.api.deps import ApiServices
from app.api.remembering import remembered
from app.api.wire.routing import Leftover
from app.core.events import Policy
from app.runtime.sessions.creation import Wanted
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.verbs import SETTLE_S
from app.runtime.side.schedule_records import Spoken, Target
from app.runtime.side.schedules import Asked
from app.runtime.side.timing import Missed, Timing
from app.runtime.side.webhook_records import WebhookSpec
from app.runtime.telling import EVENTS
from tests.simulation.cases import LEASE_S
from tests.simulation.cluster import ApiProcess
from tests.simulation.users import TENANT, User

PATIENCE = 6
"""How often a request whose key stays in flight is sent again: its process may have died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks(Timing):
    """A timing that a short run can see: `times` moments, each `every_us` after the last."""

    first_us: int
    every_us: int
    times: int

    def _all(self) -> list[int]:
        return [self.first_us + n * self.every_us for n in range(self.times)]

    @override
    def after(self, moment_us: int) -> int | None:
        return next((tick for tick in self._all() if tick > moment_us), None)

    @override
    def latest(self, first_us: int, until_us: int, most: int) -> list[int]:
        return [tick for tick in self._all() if first_us <= tick <= until_us][-most:]


Work = Callable[[ApiProcess], Awaitable[Answer]]


async def keyed(user: User, attempt: Attempt, work: Work, *, repeatable: bool = False) -> bool:
    """Do something whose key the route keeps, twice at once; return whether it was answered so.

    Whoever is answered is answered the same. One whose process died leaves its key in flight.
    """
    answers: list[Answer] = []

    async def leaves() -> Leftover:
        return Leftover(SETTLE_S + LEASE_S, again=repeatable)

    async def ask(api: ApiProcess) -> Answer:
        services = cast("ApiServices", api)
        return await remembered(services, attempt, lambda: work(api), leaves)

    async def once() -> None:
        answer = await user.ask(ask, most=PATIENCE)
        if answer is not None:
            answers.append(answer)

    await user.both(once)
    said = {(answer.status, answer.body) for answer in answers}
    if len(said) > 1:
        user.cluster.audit.fail(f"{attempt.key} was answered in two ways: {said}")
    return any(answer.status < HTTPStatus.INTERNAL_SERVER_ERROR for answer in answers)


async def cancels_by_key(user: User, session_id: str) -> None:
    """End the turn, twice at once under a key that a route keeps and may take over."""
    _, attempt = user.attempt("cancels")
    await keyed(user, attempt, lambda api: api.sessions.cancel(TENANT, session_id), repeatable=True)


async def registers(user: User, session_id: str) -> None:
    """Have an endpoint told of some events."""
    del session_id
    text, attempt = user.attempt("registers")
    kinds = tuple(kind for kind in EVENTS if user.chance.random() < 0.6) or EVENTS[:1]
    spec = WebhookSpec(f"https://{user.number}.test/{user.said}", kinds, text, enabled=True)

    async def work(api: ApiProcess) -> Answer:
        made, _ = await api.webhooks.register(TENANT, spec)
        return Answer(201, made.id.encode())

    answered = await keyed(user, attempt, work)
    hooks = user.cluster.hooks.hooks.values()
    _one_effect(user, text, sum(hook.spec.description == text for hook in hooks), answered)


def _one_effect(user: User, text: str, effects: int, answered: bool) -> None:  # noqa: FBT001 - told
    user.cluster.promises.marked.append(text)
    if effects > 1 or (answered and not effects):
        user.cluster.audit.fail(f"{text!r} was asked for under one key and done {effects} times")


async def schedules(user: User, session_id: str) -> None:
    """Have a session made, or spoken to, some times from soon on."""
    text, attempt = user.attempt("schedules")
    target: Target = Wanted(task=text)
    if user.chance.random() < 0.3:
        target = Spoken(session_id=session_id, text=text, policy=Policy.ENQUEUE)
        user.cluster.audit.repeated.add(text)
    asked = _asked(user, text, target)

    async def work(api: ApiProcess) -> Answer:
        row = await api.schedules.create(TENANT, asked)
        return Answer(201, row.id.encode())

    answered = await keyed(user, attempt, work)
    made = [r for r in user.cluster.promises.made.values() if r.name == text]
    _one_effect(user, text, len(made), answered)
    user.schedules.extend((row.id, text) for row in made)
    if user.chance.random() < 0.5:  # about when it is due for the first time
        now_us = user.cluster.store.clock.now_us()
        due_s = ((asked.timing.after(0) or 0) - now_us) / 1_000_000
        await asyncio.sleep(max(0.0, due_s + user.chance.choice((-0.2, 0.2, 0.9, 1.5))))
        await reschedules(user, session_id)


def _asked(user: User, name: str, target: Target) -> Asked:
    now_us = user.cluster.store.clock.now_us()
    chance = user.chance
    ticks = Ticks(
        first_us=now_us + round(chance.choice((0.7, 1.5, 3.0)) * 1_000_000),
        every_us=chance.choice((400_000, 1_500_000)),
        times=chance.choice((1, 2, 3)),
    )
    missed = chance.choice(list(Missed))
    return Asked(name=name, timing=ticks, missed=missed, paused=False, target=target)


async def reschedules(user: User, session_id: str) -> None:
    """Change, pause or remove a schedule: what it said before is said no more from then on."""
    del session_id
    if not user.schedules:
        return
    promises = user.cluster.promises
    schedule_id, text = user.schedules.pop()
    speaks = promises.made[schedule_id].session_id is not None  # a message waits for its turn
    promises.touched.add(schedule_id)
    how = user.chance.choice(("pause", "delete", "change"))
    user.tell(how, schedule_id)

    async def ask(api: ApiProcess) -> Answer:
        if how == "pause":
            await api.schedules.pause(TENANT, schedule_id)
        elif how == "delete":
            await api.schedules.delete(TENANT, schedule_id)
        else:
            new = Wanted(task=f"{text} anew")
            await api.schedules.change(TENANT, schedule_id, _asked(user, text, new))
        return Answer(200, b"")

    if await user.ask(ask, most=PATIENCE) is not None and not speaks:
        promises.barred.add(text)
