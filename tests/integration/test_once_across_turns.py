"""A `once` call of unknown outcome is remembered by the turns that follow (TOOL-10)."""

import pytest

from tests.integration.people import people
from tests.integration.stack import Stacks
from tests.scripted.answers import Answer, args, calls, tc, text
from tests.scripted.history import Body
from tests.scripted.scripts import results_so_far


def paying(request: Body, n: int) -> Answer:
    """Pay the same in each turn."""
    return text("done") if results_so_far(request) else calls(tc(f"c{n}", "pay", args(amount=5)))


@pytest.mark.req("TOOL-10", "API-7")
@pytest.mark.parametrize("how", ["interrupt", "cancel", "timeout"])
async def test_what_may_have_happened_in_an_earlier_turn_is_put_to_a_person(
    stacks: Stacks, how: str
) -> None:
    pay = {"timeout_s": 2.0 if how == "timeout" else 30.0}
    async with people(stacks, paying, pay=pay) as scene:
        hold = scene.tools.hold_after("pay")
        session = await scene.client.create("go")
        await scene.tools.called(1)
        policy = "interrupt" if how == "interrupt" else "reject"
        if how == "cancel":
            await scene.client.cancel(session)
        elif how == "timeout":
            await scene.client.reached(session, "completed")
        body = {"text": "again", "when_busy": policy}
        await scene.client.post(f"/v1/sessions/{session}/messages", body, expect=202)
        pending = await scene.waiting(session, "approval")
        (asked,) = pending["approvals"]
        assert asked["reason"] == "unknown_outcome"
        told = await scene.client.get(f"/v1/sessions/{session}/why")
        assert any("the call t1_c1_1 of pay happened" in line for line in told["uncertain"])
        assert scene.paid() == [5]
        hold.release()
        await scene.decide(asked["id"], "approve")
        await scene.client.reached(session, "completed")
        assert scene.paid() == [5, 5]
        await scene.client.post(f"/v1/sessions/{session}/messages", {"text": "more"}, expect=202)
        await scene.client.reached(session, "completed")
        assert scene.paid() == [5, 5, 5], "a person has resolved the doubt"
