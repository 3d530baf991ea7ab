"""`Idempotency-Key` for requests whose effect is not in one transaction with the record.

The key is marked as in flight before the work and gets its answer after it. A process that is
killed between leaves the mark. When no living request can be so old, whoever sends it again takes
the mark over: what may be done again (a cancel) is done; of anything else nobody knows whether it
took effect, so that is its answer from then on, and it is never done twice.

A refusal had no effect: its mark goes away, and the key is as good as new.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from app.api.deps import ApiServices
from app.api.wire import problems
from app.api.wire.routing import Leftover
from app.runtime.ports.sessions import Remember
from app.runtime.refusals import KeyCutOff
from app.runtime.sessions.idempotency import Answer, Attempt

SLACK_S: Final = 10.0
"""For how long beyond its time limit a request may live that does no harm when done twice."""
CUT_OFF_S: Final = 60.0
"""And any other, before it is held to be dead."""
_CUT_OFF: Final = (
    "The first request under this key was cut off, and it is not known whether it took effect. "
    "Look, and send it again under a new key only if it did not."
)


async def remembered(
    services: ApiServices,
    attempt: Attempt,
    work: Callable[[], Awaitable[Answer]],
    leaves: Callable[[], Awaitable[Leftover]],
    session_id: str | None = None,
) -> Answer:
    """Do the work once for its key; `leaves` says what to do with the mark of a killed process.

    What is kept of a request to a session is kept as that session's, and goes when it is erased.
    """
    mark = attempt.record(services.keyring, 0, b"", session_id)
    found = await services.store.begin_remembering(mark)
    if found is not None:
        left = found.status == 0 and attempt.same(services.keyring, found)
        leftover = await leaves() if left else None
        if leftover is None or not await services.store.retake_mark(mark, _dead_s(leftover)):
            return attempt.replay(services.keyring, found)
        if not leftover.again:
            cut_off = KeyCutOff(_CUT_OFF)
            await _settle(services, attempt, mark, problems.refused(cut_off))
            raise cut_off
    try:
        done = await work()
    except Exception as error:
        problem = problems.known(error) or problems.internal()
        if problem.status < HTTPStatus.INTERNAL_SERVER_ERROR or (await leaves()).again:
            await services.store.drop_mark(mark)
        else:
            await _settle(services, attempt, mark, problem)
        raise
    await _finish(services, mark, done.status, done.body, done.location)
    return done


def _dead_s(leftover: Leftover) -> float:
    return leftover.lasted_s + (SLACK_S if leftover.again else CUT_OFF_S)


async def _settle(
    services: ApiServices, attempt: Attempt, mark: Remember, problem: problems.HttpProblem
) -> None:
    instance = attempt.route.partition(" ")[2]
    await _finish(services, mark, problem.status, problems.document(problem, instance))


async def _finish(
    services: ApiServices, mark: Remember, status: int, body: bytes, location: str | None = None
) -> None:
    sealed = services.keyring.seal_record(body)
    record = replace(mark, status=status, body=sealed, location=location)
    await services.store.finish_remembering(record)
