"""Scripts by name. Each decides by the request alone, so any number of sessions can share one."""

from collections.abc import Callable
from typing import Final

from tests.scripted.answers import Answer, args, calls, tc, text
from tests.scripted.history import Body

Script = Callable[[Body, int], Answer]


def results_so_far(request: Body) -> list[str]:
    """Return the tool results after the last message of the user, in order."""
    results: list[str] = []
    for message in reversed(request["messages"]):
        if message["role"] == "user":
            break
        if message["role"] == "tool":
            results.append(message["content"])
    return results[::-1]


def _step(number: int, name: str, **arguments: object) -> Answer:
    return calls(tc(f"call_{number}", name, args(**arguments)))


_SUMS: Final = tuple(_step(i, "calculate", expression=f"{i} * 17 + {i * i}") for i in range(1, 5))
_SUMS_DONE: Final = text("The four results are 18, 38, 60 and 84.")
_SHOP: Final = (_step(1, "calculate", expression="299 * 0.8 - 50"),)
_WEATHER: Final = (
    _step(1, "get_weather", city="Beijing", date="2025-12-15"),
    _step(2, "create_reminder", title="Weather", time="07:00", text="Take an umbrella"),
)
_WEATHER_DONE: Final = text("31 degrees and rain. A reminder at 07:00 says to take an umbrella.")


def five_plus_four(request: Body, _n: int) -> Answer:
    """Five model calls and four calls of `calculate`, one after the other."""
    done = len(results_so_far(request))
    return _SUMS[done] if done < len(_SUMS) else _SUMS_DONE


def shop(request: Body, _n: int) -> Answer:
    """One sum, then an answer that repeats its result."""
    results = results_so_far(request)
    return _SHOP[len(results)] if len(results) < len(_SHOP) else text(f"You pay: {results[-1]}")


def weather(request: Body, _n: int) -> Answer:
    """Read the weather, set a reminder, answer."""
    done = len(results_so_far(request))
    return _WEATHER[done] if done < len(_WEATHER) else _WEATHER_DONE


def plain(_request: Body, _n: int) -> Answer:
    """Answer at once."""
    return _HELLO


_HELLO: Final = text("Hello from the scripted model.")

SCRIPTS: Final[dict[str, Script]] = {
    "five_plus_four": five_plus_four,
    "shop": shop,
    "weather": weather,
    "plain": plain,
}
