"""What people answer when a session waits for them: honestly, and two of them at once."""

import asyncio

from app.core.events import Choice
from app.core.lifecycle import PendingKind
from app.runtime.ports.sessions import SessionRow
from app.runtime.sessions.answers import ClientResult
from app.runtime.sessions.approvals import Decided
from app.runtime.times import from_rfc3339
from app.runtime.views import RESULT, VERIFICATION, pending_approvals, pending_calls
from tests.fakes.clock import EPOCH_US
from tests.simulation.side_users import cancels_by_key, registers, reschedules, schedules
from tests.simulation.small import LinkedCipher
from tests.simulation.users import ACTS, TENANT, Act, User

SOON_S = 6.0
LAST_MOMENT_S = 0.05


async def answers(user: User, session_id: str) -> None:
    """Look what a session waits for, and say what there is to say."""
    row = await user.cluster.store.get(TENANT, session_id)
    if row is None or row.pending_kind is None:
        return
    cipher = LinkedCipher(row.id)
    for call_id in pending_calls(row, cipher, VERIFICATION):
        await _verifies(user, session_id, call_id)
    for call_id in pending_calls(row, cipher, RESULT):
        await _delivers(user, session_id, call_id)
    if row.pending_kind is PendingKind.APPROVAL:
        await _approves(user, row)


async def _verifies(user: User, session_id: str, call_id: str) -> None:
    happened = user.cluster.outside.happened(session_id, call_id)
    user.tell("finds", call_id, f"happened={happened}")
    won = await user.twice(
        lambda api: api.answers.verify(TENANT, session_id, call_id, None, None, happened=happened)
    )
    user.cluster.audit.won(f"verification of {session_id} {call_id}", won)


async def _delivers(user: User, session_id: str, call_id: str) -> None:
    error = user.chance.choice((None, None, "it failed here"))
    result = ClientResult(call_id=call_id, output=None if error else {"by": "hand"}, error=error)
    user.tell("delivers", call_id)
    won = await user.twice(lambda api: api.answers.tool_result(TENANT, session_id, result, None))
    user.cluster.audit.won(f"result of {session_id} {call_id}", won)


async def _approves(user: User, row: SessionRow) -> None:
    """Decide; a call is not allowed whose action was begun before, since it may have happened."""
    for asked in pending_approvals(row, LinkedCipher(row.id)):
        approval_id, action = str(asked["id"]), str(asked["hash"])
        await _hesitates(user, str(asked["expires_at"]))
        begun = user.cluster.outside.begun(row.id, action)
        choices = (Choice.DENY,) if begun else (Choice.APPROVE, Choice.APPROVE, Choice.DENY)
        choice = user.chance.choice(choices)
        changed = {"n": 7} if choice is Choice.APPROVE and user.chance.random() < 0.2 else None
        if changed is not None and user.cluster.outside.begun_with(row.id, asked["name"], changed):
            changed = None
        decided = Decided(choice=choice, arguments=changed, by=f"u{user.number}")
        user.tell("decides", asked["call_id"], choice.value)
        won = await user.twice(
            lambda api, i=approval_id, d=decided: api.approvals.decide(TENANT, i, d, None)  # type: ignore[misc]
        )
        user.cluster.audit.won(f"approval {approval_id}", won)


async def _hesitates(user: User, until: str) -> None:
    """Now and then wait for the last moment before a question lapses, if that is soon."""
    left_s = (from_rfc3339(until) - EPOCH_US) / 1_000_000 - user.cluster.loop.time()
    if 0 < left_s < SOON_S and user.chance.random() < 0.3:
        await asyncio.sleep(max(0.0, left_s - user.chance.random() * LAST_MOMENT_S))


BESIDE: list[tuple[Act, int]] = [
    (registers, 2),
    (schedules, 2),
    (reschedules, 1),
    (cancels_by_key, 1),
]
"""What they do beside their sessions."""

EVERYTHING: list[tuple[Act, int]] = [*ACTS, (answers, 6), *BESIDE]
"""All that users do."""
