"""The histories: rules that hypothesis puts together, checked against the table and the journals.

After each rule every session comes to rest, or to where the model or a tool holds it; so the table
says exactly what the next verb gives. What came to pass is judged at the end of a history.
"""

import asyncio
from collections.abc import Coroutine
from typing import ClassVar, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule
from typing_extensions import override

from tests.histories import table
from tests.histories.table import Verdict
from tests.histories.words import MOST_STEPS, WORDS
from tests.histories.world import Talk, World
from tests.integration.client import Json

T = TypeVar("T")
ACCIDENTS = ("worker 0", "worker 1", "api 0", "api 1", "redis", "redis stands still", "postgres")
STEP_S = 120.0
words = st.sampled_from(WORDS)
which = st.integers(0, 1)


class Histories(RuleBasedStateMachine):
    """Sessions, people and accidents. `world` and `loop` are set before it runs."""

    world: ClassVar[World]
    loop: ClassVar[asyncio.AbstractEventLoop]
    failures: ClassVar[list[BaseException]] = []
    """What went wrong first ends everything: after it the world is not what it was."""
    talks = Bundle("talks")

    def __init__(self) -> None:
        """Start without sessions."""
        super().__init__()
        self.known: list[Talk] = []

    def play(self, work: Coroutine[None, None, T]) -> T:
        """Do something on the world's loop."""
        if self.failures:
            work.close()
            raise self.failures[0]
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result(STEP_S)
        except Exception as error:
            self.failures.append(error)
            raise

    def _words(self, name: str, word: str) -> str:
        said = f"{name} {word} {next(self.world.numbers)}"
        self.world.hold_for(said)
        return said

    @initialize(target=talks, first=words, second=words)
    def begin(self, first: str, second: str) -> object:
        """Start with two sessions."""
        return multiple(self._create(0, first), self._create(1, second))

    @rule(target=talks, api=which, word=words)
    def create(self, api: int, word: str) -> Talk:
        """Make another session."""
        return self._create(api, word)

    def _create(self, api: int, word: str) -> Talk:
        said = self._words(f"s{next(self.world.numbers)}", word)
        made = self.play(self.world.post(api, "/v1/sessions", {"task": said}))
        assert made.status_code == 201, made.text
        talk = Talk(str(made.json()["id"]), [said])
        self.known.append(talk)
        self.settle()
        return talk

    @rule(talk=talks, api=which, word=words)
    def say(self, talk: Talk, api: int, word: str) -> None:
        """Send a message that is refused while a turn is open."""
        self.play(self._say(talk, api, word, "reject"))
        self.settle()

    @rule(talk=talks, api=which, word=words)
    def enqueue(self, talk: Talk, api: int, word: str) -> None:
        """Send a message that waits for the open turn."""
        self.play(self._say(talk, api, word, "enqueue"))
        self.settle()

    @rule(talk=talks, api=which)
    def steer(self, talk: Talk, api: int) -> None:
        """Send a message into the open turn."""
        self.play(self._say(talk, api, "answer", "steer"))
        self.settle()

    @rule(talk=talks, api=which, word=words)
    def interrupt(self, talk: Talk, api: int, word: str) -> None:
        """Send a message that ends the open turn."""
        before = self.play(self._say(talk, api, word, "interrupt"))
        if before["status"] in table.ALIVE:
            self.settle()
            assert self.play(self._end_of(talk, before["turn"]))["stop_reason"] == "cancelled"
        self.settle()

    async def _say(self, talk: Talk, api: int, word: str, policy: str) -> Json:
        before = await self.world.quiet(talk)
        said = self._words(talk.heard[0].split()[0], word)
        path = f"/v1/sessions/{talk.id}/messages"
        answer = await self.world.post(api, path, {"text": said, "when_busy": policy})
        wanted = table.message(before, policy)
        receipt = answer.json().get("receipt")
        assert Verdict(answer.status_code, receipt) == wanted, (before, policy, answer.text)
        if wanted.receipt is not None:
            talk.said.append(said)
        return before

    @rule(talk=talks, api=which)
    def cancel(self, talk: Talk, api: int) -> None:
        """Cancel: a turn that is open ends, one that has ended stays as it is."""
        before = self.look(talk)
        answer = self.play(self.world.post(api, f"/v1/sessions/{talk.id}/cancel", {}))
        assert answer.status_code == 200, answer.text
        if before["status"] not in table.ALIVE:
            assert answer.json()["status"] == before["status"]
        else:
            assert self.play(self._end_of(talk, before["turn"]))["stop_reason"] == "cancelled"
        self.settle()

    async def _end_of(self, talk: Talk, turn: int) -> Json:
        path = f"/v1/sessions/{talk.id}/events?limit=500"
        events = (await self.world.get(path))["data"]
        ends = [e for e in events if e["type"] == "turn.ended" and e["turn"] == turn]
        assert len(ends) == 1, (turn, [e["type"] for e in events][-5:])
        end: Json = ends[0]["data"]
        return end

    @rule(talk=talks, api=which)
    def close(self, talk: Talk, api: int) -> None:
        """Close: the session takes nothing more."""
        answer = self.play(self.world.post(api, f"/v1/sessions/{talk.id}/close", {}))
        assert (answer.status_code, answer.json()["status"]) == (200, "closed"), answer.text
        self.settle()

    @rule(talk=talks, raised=st.booleans())
    def resume_twice_at_once(self, talk: Talk, raised: bool) -> None:  # noqa: FBT001 - drawn
        """Two people resume at once: one of them does it, if it can be done."""
        before = self.look(talk)
        limits = {"max_steps": int(before["limits"]["max_steps"]) + MOST_STEPS}
        body = {"limits": limits} if raised else {}
        got = self._at_once(f"/v1/sessions/{talk.id}/resume", [body, body])
        wanted = table.resume(before, raised=raised)
        assert got == sorted([wanted.code, 409]), (before, raised, got)
        self.settle()

    def _at_once(self, path: str, bodies: list[object]) -> list[int]:
        """Post to both processes at the same time; return the statuses, sorted."""

        async def both() -> list[int]:
            async with asyncio.TaskGroup() as group:
                posts = [
                    group.create_task(self.world.post(n, path, body))
                    for n, body in enumerate(bodies)
                ]
            return sorted(post.result().status_code for post in posts)

        return self.play(both())

    @rule(talk=talks, denied=st.booleans())
    def answer_twice_at_once(self, talk: Talk, denied: bool) -> None:  # noqa: FBT001 - drawn
        """Two people give what the session waits for: one of them is heard."""
        pending = self.look(talk)["pending"]
        if pending is None:
            return
        match pending["kind"]:
            case "approval":
                one = pending["approvals"][0]
                path, good = f"/v1/approvals/{one['id']}", 200
                yes: object = {"decision": "approve"}
                bodies = [yes, {"decision": "deny"} if denied else yes]
            case "client_tools":
                call_id = pending["calls"][0]["call_id"]
                path, good = f"/v1/sessions/{talk.id}/tool_results", 202
                bodies = [{"call_id": call_id, "output": n} for n in range(2)]
            case _:
                call_id = pending["calls"][0]["call_id"]
                happened = f"{talk.id}:{call_id}" in self.world.effects.happened
                said = "happened" if happened else "did_not_happen"
                path, good = f"/v1/sessions/{talk.id}/verifications", 202
                bodies = [{"call_id": call_id, "outcome": said}] * 2
        got = self._at_once(path, bodies)
        assert got == [good, 409], (pending, got)
        self.settle()

    @rule(target=talks, talk=talks, api=which, share=st.floats(0, 1), word=words)
    def fork(self, talk: Talk, api: int, share: float, word: str) -> Talk:
        """Fork a session somewhere, with something else to do there."""
        head = self.look(talk)["last_seq"]
        said = self._words(talk.heard[0].split()[0], word)
        body = {"at_seq": max(2, round(share * head)), "task": said}
        made = self.play(self.world.post(api, f"/v1/sessions/{talk.id}/fork", body))
        assert made.status_code == 201, made.text
        fork = Talk(str(made.json()["id"]), [said], forked_from=talk)
        self.known.append(fork)
        self.settle()
        return fork

    @rule(talk=talks)
    def let_go(self, talk: Talk) -> None:
        """Let the model and the tools answer a session."""
        self.play(self._let_go(talk))
        self.settle()

    async def _let_go(self, talk: Talk) -> None:
        for said in talk.heard:
            self.world.let_go(said)

    @rule(talk=talks, api=which, word=words, what=st.sampled_from(ACCIDENTS))
    def accident(self, talk: Talk, api: int, word: str, what: str) -> None:
        """Somebody says something in the middle of an accident."""

        async def both() -> None:
            await self.world.quiet(talk)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.world.harm(what))
                group.create_task(self._say(talk, api, word, "enqueue"))

        self.play(both())
        self.settle()

    @rule(talk=talks, api=which)
    def lose_the_owner(self, talk: Talk, api: int) -> None:
        """Kill the owner, if there is one, and resume at once."""
        before = self.look(talk)
        self.play(self.world.harm(f"worker {self.play(self.world.owner_of(talk))}"))
        answer = self.play(self.world.post(api, f"/v1/sessions/{talk.id}/resume", {}))
        allowed = {table.resume(before, raised=False).code}
        if before["status"] == "running":
            allowed.add(202)  # once the lease is over, and nobody has taken over
        assert answer.status_code in allowed, (before, answer.text)
        self.settle()

    def look(self, talk: Talk) -> Json:
        """Return a session, which is at rest or held."""
        return self.play(self.world.quiet(talk))

    def settle(self) -> None:
        """Let every session come to rest or to where it is held."""
        for talk in self.known:
            self.play(self.world.quiet(talk))

    @override
    def teardown(self) -> None:
        """End every session and judge all of them."""
        for talk in self.known:
            self.play(self._let_go(talk))
        for talk in self.known:
            closed = self.play(self.world.post(0, f"/v1/sessions/{talk.id}/close", {}))
            assert closed.status_code == 200, closed.text
        faults: list[str] = []
        for talk in self.known:
            self.play(self.world.quiet(talk))
            faults += self.play(self.world.judge(talk))
        world = self.world
        faults += [*world.effect_faults(), *world.watch.faults, *world.endpoint.violations]
        faults += world.process_faults()
        note(f"{len(self.known)} sessions")
        assert not faults, faults
