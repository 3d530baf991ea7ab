"""The promise under every fault the simulation knows."""

import pytest

from tests.simulation.pool import PROCESSES, Sum, played_by_many

SEEDS = 2000


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.req(
    "STATE-1", "STATE-2", "STATE-4", "STATE-10", "API-3", "API-7", "TOOL-10", "TOOL-17"
)
@pytest.mark.case("C042", "C057", "C064", "C067", "C068", "C069", "C070", "C075", "C085", "C112")
def test_two_thousand_runs_keep_every_invariant() -> None:
    total = played_by_many(range(SEEDS), PROCESSES, None, lambda _sum: None)
    told = [outcome.told() for outcome in total.failures[:1]]
    failed = [outcome.seed for outcome in total.failures]
    assert failed == [], "\n".join((f"seeds that fail: {failed}", *told))
    assert total.runs == SEEDS
    assert _missing(total) == []


def _missing(total: Sum) -> list[str]:
    """Return what did not happen often enough for these runs to mean anything."""
    wanted = {
        "approval.decided": 50,
        "approval.requested": 50,
        "guard.tripped": 100,
        "limits.raised": 10,
        "message.received": 500,
        "model.failed": 50,
        "session.claimed": 1000,
        "session.closed": 50,
        "session.forked": 50,
        "session.interrupted": 50,
        "session.resumed": 10,
        "timer.fired": 50,
        "tool.attempted": 50,
        "tool.checked": 20,
        "turn.ended": 3000,
        "verification.decided": 20,
        "verification.requested": 20,
        "attempt again": 50,
        "delivery dead": 10,
        "delivery delivered": 500,
        "effect under a route's key": 500,
        "firing fired": 500,
        "firing skipped": 20,
        "schedule changed": 50,
        "turn without readers": 50,
    }
    return [
        f"{kind}: {total.events[kind]}, not {n}"
        for kind, n in wanted.items()
        if total.events[kind] < n
    ]
