"""A message that arrives at the very moment a turn ends is answered: a thousand tries at it."""

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from tests.integration.client import Client, Json
from tests.integration.plans import last_message
from tests.integration.stack import Stack, Stacks
from tests.scripted.answers import Answer, delayed, text
from tests.scripted.history import Body
from tests.scripted.model import ScriptedModel
from tests.waiting import until

SESSIONS = 20
TRIES = 50
FINE_S, COARSE_S = 0.001, 0.25


class Echo:
    """Answers with the words of the last message, and tells who waits for that moment."""

    def __init__(self) -> None:
        """Nobody has been answered."""
        self.asked: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.late_s: dict[str, float] = defaultdict(float)
        """How long the answer to a message is held back."""

    def __call__(self, request: Body, _n: int) -> Answer:
        """Answer."""
        words = last_message(request)
        self.asked[words].set()
        answer = text(f"You said: {words}", pieces=1)
        return delayed(self.late_s[words], answer)


@dataclass(slots=True, kw_only=True)
class Aim:
    """How long after the model was asked to post, so as to come at the end of the turn.

    What came too early moves it later and what came too late earlier, by twice as much with each
    of a kind in a row and by little after a change. So neither kind comes much more often than ten
    times in a row, however slow the machine is. Below zero is reached by a model that answers late.
    """

    at_s: float = 0.005
    step_s: float = FINE_S
    last: str = ""

    def next(self, chance: random.Random) -> float:
        """Return when to post the next one, within a step of the aim."""
        return self.at_s + self.step_s * chance.uniform(-1, 1)

    def corrected(self, receipt: str) -> None:
        """Learn from where it came."""
        self.step_s = min(2 * self.step_s, COARSE_S) if receipt == self.last else FINE_S
        self.last = receipt
        self.at_s += self.step_s if receipt == "enqueued" else -self.step_s


@dataclass(slots=True)
class Aimer:
    """Posts messages to one session, each aimed at the end of the turn before.

    The next try begins only when the model was asked about this one, so no message can be saved by
    one that came later.
    """

    client: Client
    number: int
    echo: Echo
    session_id: str = ""
    aim: Aim = field(default_factory=Aim)
    receipts: Counter[str] = field(default_factory=Counter)

    def words(self, n: int) -> str:
        """Return a message's text."""
        return f"session {self.number} message {n}"

    async def run(self, chance: random.Random) -> None:
        """Create the session and make all tries."""
        self.session_id = await self.client.create(self.words(-1))
        for n in range(TRIES):
            at_s = self.aim.next(chance)
            self.echo.late_s[self.words(n)] = max(0.0, -at_s)
            async with asyncio.timeout(60):
                await self.echo.asked[self.words(n - 1)].wait()
            await asyncio.sleep(max(0.0, at_s))
            body = {"text": self.words(n), "when_busy": "enqueue"}
            path = f"/v1/sessions/{self.session_id}/messages"
            receipt = (await self.client.post(path, body, expect=202))["receipt"]
            self.receipts[receipt] += 1
            self.aim.corrected(receipt)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("API-7", "STATE-1")
async def test_a_message_at_the_end_of_a_turn_is_answered(stacks: Stacks) -> None:
    echo = Echo()
    async with (
        ScriptedModel(echo, keep_requests=False) as model,
        stacks.open(model=model.base_url, env={"SUREFOOT_LOG_LEVEL": "warning"}) as stack,
    ):
        client = stack.client(await stack.start("all"))
        aimers = [Aimer(client, number, echo) for number in range(SESSIONS)]
        async with asyncio.TaskGroup() as group:
            for aimer in aimers:
                group.create_task(aimer.run(random.Random(aimer.number)))
        receipts: Counter[str] = sum((a.receipts for a in aimers), Counter())
        handed_on, claimed = 0, 0
        await until(lambda: _all_answered(stack), timeout_s=60)
        for aimer in aimers:
            events = await client.events(aimer.session_id)
            _each_is_answered_once(aimer, events)
            kept, new = _how_turns_began(events)
            handed_on += kept
            claimed += new
        assert model.count == SESSIONS * (TRIES + 1)
        assert receipts.total() == SESSIONS * TRIES == 1000
        # Both sides of the race were met: in the inbox before the end, and after the release.
        assert min(receipts["enqueued"], receipts["started"]) > 50, receipts
        assert min(handed_on, claimed) > 50, (handed_on, claimed)


async def _all_answered(stack: Stack) -> bool:
    rows = await stack.rows("select status, turn, count(*) from sessions group by 1, 2")
    return [tuple(row) for row in rows] == [("completed", TRIES + 1, SESSIONS)]


def _each_is_answered_once(aimer: Aimer, events: list[Json]) -> None:
    asked = [e["data"]["text"] for e in events if e["type"] == "turn.started"]
    assert asked == [aimer.words(n) for n in range(-1, TRIES)]
    ended = [e["data"]["result"]["text"] for e in events if e["type"] == "turn.ended"]
    assert ended == [f"You said: {words}" for words in asked]


def _how_turns_began(events: list[Json]) -> tuple[int, int]:
    """Return how many turns began under the owner of the one before, and how many by a claim."""
    claims = [e["turn"] for e in events if e["type"] == "session.claimed"]
    began = {e["turn"] for e in events if e["type"] == "turn.started"} - {1}
    claimed = len(began & set(claims))
    return len(began) - claimed, claimed
