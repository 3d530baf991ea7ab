"""Endpoints of webhooks outside: what reached them, under which id, and what they answered."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.runtime.side.webhook_records import Posted
from tests.simulation.audit import Audit
from tests.simulation.loop import Process
from tests.simulation.outside import Outside
from tests.simulation.weather import Weather

_GONE = 410
_REFUSALS = (500, 503, 404)


@dataclass
class Endpoints:
    """All of them: each takes a message, says no, or takes it without an answer."""

    outside: Outside
    weather: Weather
    audit: Audit
    taken: Counter[str] = field(default_factory=Counter)
    bodies: dict[str, bytes] = field(default_factory=dict)

    def take(self, message_id: str, body: bytes, process: Process) -> None:
        """Note a message that was taken; every attempt says the same."""
        self.taken[message_id] += 1
        self.audit.note(process.name, "posts", message_id)
        if self.bodies.setdefault(message_id, body) != body:
            self.audit.fail(f"{message_id} was posted with two bodies")


@dataclass
class HooksPort:
    """The `Poster` of one process."""

    endpoints: Endpoints
    process: Process

    async def refusal(self, url: str) -> str | None:
        del url
        return None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        del url
        outside, weather = self.endpoints.outside, self.endpoints.weather
        chance, message_id = weather.chance, headers["webhook-id"]
        self.process.reaches("post", chance)
        await outside.wait(chance.choice((0.0, 0.02, 0.3)))
        if weather.happens(weather.post_fails):
            how = chance.random()
            if how < 0.1:
                return Posted(_GONE)
            if how < 0.5:
                return Posted(chance.choice(_REFUSALS))
            if how < 0.75:
                return Posted(None, "It refused the connection.")
            self.endpoints.take(message_id, body, self.process)
            await outside.wait(chance.choice((0.1, 1.0)))
            return Posted(None, "No answer came in time.")
        self.endpoints.take(message_id, body, self.process)
        await outside.wait(chance.choice((0.0, 0.02, 0.3)))
        return Posted(204)
