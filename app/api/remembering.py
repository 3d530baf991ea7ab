"""`Idempotency-Key` for requests whose effect is not in one transaction with the record.

The key is marked as in flight before the work and gets its answer after it. A process that is
killed between leaves the mark. What may be done again (a cancel) takes an old mark over; for
anything else nobody knows whether the effect happened, and the request stays refused as in flight.

A refusal had no effect: its mark goes away, and the key is as good as new.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from app.api.deps import ApiServices
from app.api.wire import problems
from app.runtime.ports.sessions import Remember
from app.runtime.sessions.idempotency import Answer, Attempt
from app.runtime.sessions.verbs import SETTLE_S

_SLACK_S: Final = 10.0


async def remembered(
    services: ApiServices,
    attempt: Attempt,
    work: Callable[[], Awaitable[Answer]],
    *,
    repeatable: bool = False,
) -> Answer:
    """Do the work once for its key; `repeatable` says that doing it again does no harm."""
    mark = attempt.record(services.keyring, 0, b"", None)
    found = await services.store.begin_remembering(mark)
    if found is not None and not (
        repeatable
        and found.status == 0
        and attempt.same(services.keyring, found)
        and await services.store.retake_mark(mark, _longest_s(services))
    ):
        return attempt.replay(services.keyring, found)
    try:
        done = await work()
    except Exception as error:
        problem = problems.known(error) or problems.internal()
        if repeatable or problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            await services.store.drop_mark(mark)
        else:
            instance = attempt.route.partition(" ")[2]
            await _finish(services, mark, problem.status, problems.document(problem, instance))
        raise
    await _finish(services, mark, done.status, done.body, done.location)
    return done


async def _finish(
    services: ApiServices, mark: Remember, status: int, body: bytes, location: str | None = None
) -> None:
    sealed = services.keyring.seal_record(body)
    record = replace(mark, status=status, body=sealed, location=location)
    await services.store.finish_remembering(record)


def _longest_s(services: ApiServices) -> float:
    """Return how long a cancel may last; a mark older than that was left by a process that died."""
    return SETTLE_S + services.sessions.lease_s + _SLACK_S
