"""What goes wrong in a run: rates drawn from its seed, so that each run has faults of its own.

One run in eight is calm: nothing fails in it, only the order is the seed's; there the simulation is
strict about promptness too. All others have some kinds of fault and not others, so that a rare one
is not drowned by the frequent ones.
"""

import random
from dataclasses import dataclass, field

from typing_extensions import override

_RATES = (0.003, 0.01, 0.04)
_LOSSY_RATES = (0.02, 0.1, 0.3)
_LOSSY = frozenset({"dropped", "doubled", "reordered", "nudge_lost", "hot_lost"})
_CALM_ONE_IN = 8
_LATENCIES_S = (0.0, 0.0, 0.001, 0.001, 0.002, 0.005)


@dataclass
class Weather:
    """Probabilities for each thing that can happen; all nought once it has cleared."""

    chance: random.Random
    calm: bool = False
    # answers of Postgres: not carried out, carried out unheard, late, slow
    refused: float = 0.0
    unheard: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    # Redis
    dropped: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    nudge_lost: float = 0.0
    hot_lost: float = 0.0
    # tools and models
    unsent: float = 0.0
    tool_fails: float = 0.0
    tool_lost: float = 0.0
    model_fails: float = 0.0
    post_fails: float = 0.0
    # how many, over the whole run
    kills: int = 0
    freezes: int = 0
    drains: int = 0
    outages: int = 0
    redis_outages: int = 0
    rates: tuple[str, ...] = field(
        default=(
            "refused",
            "unheard",
            "late",
            "slow",
            "dropped",
            "doubled",
            "reordered",
            "nudge_lost",
            "hot_lost",
        ),
        repr=False,
    )

    def clear(self) -> None:
        """Let nothing fail from now on."""
        for name in (*self.rates, "unsent", "tool_fails", "tool_lost", "model_fails", "post_fails"):
            setattr(self, name, 0.0)

    def happens(self, rate: float) -> bool:
        return rate > 0 and self.chance.random() < rate

    def latency_s(self) -> float:
        """Return how long a message is on its way: often equally long, so that orders tie."""
        chance = self.chance
        if self.happens(self.slow):
            return chance.choice((0.1, 0.5, 1.5))
        return chance.choice(_LATENCIES_S)

    @override
    def __str__(self) -> str:
        shown = (f"{name}={value}" for name, value in vars(self).items() if _told(name, value))
        return " ".join(shown) or "calm"


def _told(name: str, value: object) -> bool:
    return bool(value) and name not in {"chance", "rates"}


def drawn(chance: random.Random) -> Weather:
    """Return the weather of a run."""
    weather = Weather(chance)
    weather.tool_fails = chance.choice((0.0, 0.1, 0.3))
    weather.model_fails = chance.choice((0.0, 0.02, 0.1))
    if chance.randrange(_CALM_ONE_IN) == 0:
        weather.calm = True
        return weather
    for name in weather.rates:
        if chance.random() < 0.4:
            setattr(weather, name, chance.choice(_LOSSY_RATES if name in _LOSSY else _RATES))
    weather.tool_lost = chance.choice((0.0, 0.05, 0.2))
    weather.unsent = chance.choice((0.0, 0.05, 0.2))
    weather.post_fails = chance.choice((0.0, 0.1, 0.4))
    weather.kills = chance.choice((0, 1, 1, 2, 3))
    weather.freezes = chance.choice((0, 1, 1, 2, 3))
    weather.drains = chance.choice((0, 0, 1))
    weather.outages = chance.choice((0, 0, 1))
    weather.redis_outages = chance.choice((0, 0, 1))
    return weather
