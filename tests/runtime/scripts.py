"""What the scripted model does in the tests of the runtime."""

from app.runtime.ports.models import ModelReply, ModelRequest
from tests.fakes.models import calls, results, says


def shop(request: ModelRequest) -> ModelReply:
    """One sum, then an answer that repeats its result."""
    found = results(request.messages)
    if not found:
        return calls(("calculate", {"expression": "299 * 0.8 - 50"}))
    return says(f"You pay {found[-1].content}")


def weather(request: ModelRequest) -> ModelReply:
    """Read the weather, set a reminder (again, when it is said that it was not set), answer."""
    found = results(request.messages)
    if not found:
        return calls(("get_weather", {"city": "Beijing"}))
    if not any(one.name == "create_reminder" and "error" not in one.content for one in found):
        return calls(("create_reminder", {"time": "07:00"}))
    return says("Rain. A reminder is set.")


def sums(request: ModelRequest) -> ModelReply:
    """Five answers and four calls, one after the other."""
    done = len(results(request.messages))
    if done < 4:
        return calls(("calculate", {"expression": f"{done} + {done * 17}"}))
    return says("The sums are done.")


def faulty(request: ModelRequest) -> ModelReply:
    """Answer, but crash as an adapter with a bug would when the session says "bad"."""
    if "bad" in str(request.messages):
        raise RuntimeError("an adapter's bug")
    return says("fine")
