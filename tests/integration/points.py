"""Points of a process: calls of its ports, watched by a hook before and after each of them.

The adapters' methods are replaced where the service is wired, so nothing in `app/` knows of it.
A hook gets the port, the number of the call from 1, and the side. What is counted is a call that
does something: a claim that finds a session, a publication of durable events, the answer to a
POST. `after` is when the call has come back and nobody has seen its answer yet.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from app.api.edge import Edge
from app.live.hot import RedisHotStates
from app.live.hub import RedisHub
from app.providers.registry import Models
from app.runtime.catalog import Catalog
from app.runtime.ports.live import LiveEvent
from app.runtime.ports.sessions import LockedSession
from app.runtime.ports.workers import Claim
from app.storage import sessions
from app.storage.journal import PostgresJournal
from app.storage.sessions import PostgresSessions
from app.storage.workers import PostgresWorkers
from app.tools.runner import Tools

Hook = Callable[[str, int, str], Awaitable[None]]

_LOCKED: Final = sessions._Locked  # noqa: SLF001 - the port's adapter has no public name
_METHODS: Final[dict[str, tuple[type, str]]] = {
    "append": (PostgresJournal, "append_batch"),
    "fold": (PostgresJournal, "read_many"),
    "inbox": (PostgresSessions, "inbox"),
    "model": (Models, "answer"),
    "tool": (Tools, "run"),
    "check": (Tools, "check"),
    "spec": (Catalog, "spec"),
    "hot": (RedisHotStates, "put"),
    "create": (PostgresSessions, "create"),
    "recall": (_LOCKED, "recall"),
    "deliver": (_LOCKED, "deliver"),
    "wake": (_LOCKED, "wake"),
    "remember": (_LOCKED, "remember"),
    "nudge": (RedisHub, "nudge"),
    "renew": (PostgresWorkers, "renew"),
    "sweep": (PostgresWorkers, "sweep"),
    "owned": (PostgresWorkers, "owned"),
    "give_up": (PostgresWorkers, "give_up"),
    "remove": (PostgresWorkers, "remove"),
}
_DUE: Final = """
select exists (select from sessions where wake_at <= now() or timer_at <= now())
"""


def watch(port: str, hook: Hook) -> None:
    """Let a hook see every call of a port in this process, before the service is wired."""
    if port in _METHODS:
        owner, name = _METHODS[port]
        setattr(owner, name, _seen(getattr(owner, name), port, hook))
    else:
        _SPECIAL[port](hook)


def _seen(
    call: Callable[..., Awaitable[object]], port: str, hook: Hook
) -> Callable[..., Awaitable[object]]:
    count = 0

    async def seen(*args: object, **kwargs: object) -> object:
        nonlocal count
        count += 1
        mine = count
        await hook(port, mine, "before")
        answer = await call(*args, **kwargs)
        await hook(port, mine, "after")
        return answer

    return seen


def _replace(owner: type, name: str, value: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)


def _watch_claims(hook: Hook) -> None:
    """Count the claims that found something; before one is when something is due."""
    claim, count = PostgresWorkers.claim, 0

    async def claiming(self: PostgresWorkers, *args: object) -> list[Claim]:
        nonlocal count
        if await self._engine.value(_DUE):
            await hook("claim", count + 1, "before")
        claims = await claim(self, *args)  # type: ignore[arg-type]
        if claims:
            count += 1
            await hook("claim", count, "after")
        return claims

    _replace(PostgresWorkers, "claim", claiming)


def _watch_publications(hook: Hook) -> None:
    """Count the publications of durable events; deltas come as the network likes."""
    publish, count = RedisHub.publish, 0

    async def publishing(self: RedisHub, events: list[LiveEvent]) -> None:
        nonlocal count
        durable = any(event.seq is not None for event in events)
        count += durable
        mine = count
        if durable:
            await hook("publish", mine, "before")
        await publish(self, events)
        if durable:
            await hook("publish", mine, "after")

    _replace(RedisHub, "publish", publishing)


def _watch_commits(hook: Hook) -> None:
    """A transaction around a locked row: before its commit (the lock is held), and after it."""
    locked, count = PostgresSessions.locked, 0

    @asynccontextmanager
    async def locking(
        self: PostgresSessions, tenant: str, session_id: str
    ) -> AsyncIterator[LockedSession | None]:
        nonlocal count
        async with locked(self, tenant, session_id) as row:
            yield row
            count += 1
            mine = count
            await hook("commit", mine, "before")
        await hook("commit", mine, "after")

    _replace(PostgresSessions, "locked", locking)


def _watch_answers(hook: Hook) -> None:
    """The last bytes of the answer to a POST: what acknowledges it to the client."""
    serve, count = Edge.__call__, 0

    async def serving(self: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            nonlocal count
            if message["type"] != "http.response.body" or message.get("more_body"):
                await send(message)
                return
            count += 1
            mine = count
            await hook("answer", mine, "before")
            await send(message)
            await hook("answer", mine, "after")

        post = scope["type"] == "http" and scope["method"] == "POST"
        await serve(self, scope, receive, sending if post else send)

    _replace(Edge, "__call__", serving)


_SPECIAL: Final[dict[str, Callable[[Hook], None]]] = {
    "claim": _watch_claims,
    "publish": _watch_publications,
    "commit": _watch_commits,
    "answer": _watch_answers,
}
PORTS: Final = (*_METHODS, *_SPECIAL)
WORKER: Final = ("claim", "fold", "append", "inbox", "model", "tool", "publish", "hot")
"""What a worker calls for a session, whatever the time is."""
CHORES: Final = ("renew", "sweep", "owned")
"""What a worker calls as time goes by."""
API: Final = ("create", "recall", "deliver", "wake", "remember", "commit", "nudge", "answer")
"""What an API process calls for a request."""


@dataclass(frozen=True, slots=True)
class Point:
    """One moment: before or after the n-th call of a port."""

    port: str
    nth: int
    side: str

    @classmethod
    def parse(cls, text: str) -> "Point":
        """Read `port:n:before` or `port:n:after`."""
        port, nth, side = text.split(":")
        if port not in PORTS or side not in {"before", "after"}:
            raise ValueError(f"no such point: {text}")
        return cls(port, int(nth), side)
