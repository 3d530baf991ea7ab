"""`Idempotency-Key` for requests whose effect is not in one transaction with the record.

The key is marked as in flight before the work and gets its answer after it. A process that is
killed between leaves the mark: the same request is then refused as in flight, since nobody knows
whether its effect happened.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.api import problems
from app.api.deps import ApiServices
from app.runtime.idempotency import Answer, Attempt


async def remembered(
    services: ApiServices, attempt: Attempt | None, work: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Do the work once for its key; a refusal is an answer too, and is given again."""
    if attempt is None:
        return await work()
    mark = attempt.record(services.keyring, 0, b"", None)
    found = await services.store.begin_remembering(mark)
    if found is not None:
        return attempt.replay(services.keyring, found)
    status, body = 0, b""
    try:
        done = await work()
        status, body = done.status, done.body
    except Exception as error:
        problem = problems.known(error) or problems.internal()
        instance = attempt.route.partition(" ")[2]
        status, body = problem.status, problems.document(problem, instance)
        raise
    finally:
        if status:
            sealed = services.keyring.seal_record(body)
            await services.store.finish_remembering(replace(mark, status=status, body=sealed))
    return done
