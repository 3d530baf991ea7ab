"""A user of a scripted session: says the next thing, and says it again until it was heard.

Every POST carries an idempotency key of its own and goes to one process after another, as behind
a balancer, until one has answered. What is asked about calls in doubt is answered truthfully.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx2

from tests.chaos.effects import Effects
from tests.chaos.script import MOST_STEPS
from tests.integration.client import SETTLED, Client, Json

AGAIN_S: Final = 0.05
LOOKS_S: Final = 0.03
_PASSING: Final = {429, 503}


class Refused(Exception):  # noqa: N818 - the verdict of a run, not an error of the program
    """The service said something that it may not say."""


@dataclass(slots=True)
class User:
    """Talks to a session: posts to `urls`, in turn, for `patience_s` each; looks at `mirrors`."""

    name: str
    urls: Callable[[], list[str]]
    mirrors: Callable[[], list[str]]
    effects: Effects
    patience_s: float = 30.0
    id: str = ""
    said: list[str] = field(default_factory=list)
    asked_back: int = 0
    answered: int = 0
    """How many posts were answered."""
    _posts: int = 0
    _given: set[str] = field(default_factory=set)
    _clients: dict[str, Client] = field(default_factory=dict)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()

    async def create(self, word: str, **fields: object) -> None:
        """Make the session with its first message."""
        limits = {"max_steps": MOST_STEPS, "total_timeout_s": 600}
        body = {"task": f"{self.name} {word}", "limits": limits, **fields}
        made = await self.post("/v1/sessions", body, expect=201)
        self.id = str(made["id"])
        self.said.append(word)

    async def say(self, word: str, **fields: object) -> Json:
        """Send a message."""
        body = {"text": f"{self.name} {word}", **fields}
        self.said.append(word)
        return await self.post(f"/v1/sessions/{self.id}/messages", body, expect=202)

    async def resume(self, **limits: object) -> None:
        """Let the last turn go on with other limits."""
        await self.post(f"/v1/sessions/{self.id}/resume", {"limits": limits}, expect=202)

    async def cancel(self) -> None:
        """End the turn."""
        await self.post(f"/v1/sessions/{self.id}/cancel", {}, expect=200)

    async def close_session(self) -> None:
        """End the session."""
        answer = await self.post(f"/v1/sessions/{self.id}/close", {}, expect=200)
        if answer["status"] != "closed":
            raise Refused(f"a session that was closed is {answer['status']}")

    async def rest(self, turn: int, *statuses: str) -> Json:
        """Return the session once this turn has ended, answering what is asked meanwhile."""
        while True:
            session = await self.look()
            if session["turn"] == turn and session["status"] in SETTLED:
                if session["status"] == "waiting":
                    await self._answer(session)
                    await asyncio.sleep(LOOKS_S)
                    continue
                if statuses and session["status"] not in statuses:
                    why = session["stop_reason"]
                    raise Refused(f"turn {turn} is {session['status']} ({why}), not {statuses}")
                return session
            if session["turn"] > turn:
                raise Refused(f"turn {session['turn']} has begun, {turn} was awaited")
            await asyncio.sleep(LOOKS_S)

    async def look(self) -> Json:
        """Return the session, from whichever process answers."""
        while True:
            for url in self.mirrors():
                try:
                    r = await self._client(url).http.get(
                        f"/v1/sessions/{self.id}", timeout=self.patience_s
                    )
                except httpx2.TransportError:
                    continue
                if r.status_code == httpx2.codes.OK:
                    session: Json = r.json()
                    return session
                self._check(r, "GET")
            await asyncio.sleep(AGAIN_S)

    async def _answer(self, session: Json) -> None:
        """Give what the session waits for, each once."""
        pending = session["pending"] or {"kind": "nothing"}
        if not pending.keys() & {"approvals", "calls"}:
            raise Refused(f"the session waits for {pending}")
        for approval in self._new(pending.get("approvals", []), "id"):
            body = {"decision": "approve", "hash": approval["hash"]}
            await self.post(f"/v1/approvals/{approval['id']}", body, expect=200)
        for call in self._new(pending.get("calls", []), "call_id"):
            if call.get("wants", pending["kind"]) == "verification":
                await self._verify(str(call["call_id"]))
            else:
                body = {"call_id": call["call_id"], "output": {"done": call["arguments"]}}
                await self.post(f"/v1/sessions/{self.id}/tool_results", body, expect=202)

    def _new(self, items: list[Json], key: str) -> list[Json]:
        """Return what was not answered yet."""
        new = [item for item in items if item[key] not in self._given]
        self._given.update(str(item[key]) for item in new)
        return new

    async def _verify(self, call_id: str) -> None:
        """Say of a call in doubt what the server of tools knows."""
        self.asked_back += 1
        happened = f"{self.id}:{call_id}" in self.effects.happened
        outcome = "happened" if happened else "did_not_happen"
        body = {"call_id": call_id, "outcome": outcome}
        await self.post(f"/v1/sessions/{self.id}/verifications", body, expect=202)

    async def post(self, path: str, body: object, *, expect: int) -> Json:
        """Post under a key of its own until it is answered."""
        self._posts += 1
        headers = {"Idempotency-Key": f"{self.name}:{self._posts}"}
        while True:
            for url in self.urls():
                try:
                    r = await self._client(url).http.post(
                        path, json=body, headers=headers, timeout=self.patience_s
                    )
                except httpx2.TransportError:
                    continue
                if r.status_code == expect:
                    self.answered += 1
                    answer: Json = r.json()
                    return answer
                self._check(r, path)
            await asyncio.sleep(AGAIN_S)

    def _check(self, response: httpx2.Response, what: str) -> None:
        in_flight = "idempotency-key-in-flight" in response.text
        if response.status_code not in _PASSING and not in_flight:
            raise Refused(f"{what}: {response.status_code} {response.text}")

    def _client(self, url: str) -> Client:
        return self._clients.setdefault(url, Client(url))


async def whole_session(user: User) -> None:
    """Say all there is to say, until the session is closed.

    Work; come to a limit, and go on; let a person approve and the client answer; cancel a turn in
    the middle of a tool, while the next message is in line already.
    """
    await user.create("work")
    await user.rest(1, "completed")
    await user.say("steps")
    await user.rest(2, "stopped")
    await user.resume(max_steps=2 * MOST_STEPS)
    await user.rest(3, "completed")
    await user.say("people")
    await user.rest(4, "completed")
    await user.say("slow")
    while not user.effects.deliveries[f"{user.name}-slow1"]:  # noqa: ASYNC110 - another process
        await asyncio.sleep(LOOKS_S)
    before = (await user.look())["last_seq"]
    await user.say("last", when_busy="enqueue")
    while (await user.look())["last_seq"] == before:  # noqa: ASYNC110 - another process
        await asyncio.sleep(LOOKS_S)
    await user.cancel()
    await user.rest(6, "completed")
    await user.close_session()
