"""The report of a soak, in Markdown, and what of it is a violation."""

from collections.abc import Iterable
from typing import Final

from tests.soak.fleet import Sample, slope
from tests.soak.run import Soak

WARM_UP: Final = 0.25
"""The share of a soak in which memory may grow as it likes."""
LONG_S: Final = 600.0
MOST_GROWTH: Final = 3.0
"""MB a minute after the warm-up that a process may grow in a long soak."""
MOST_SOCKETS: Final = 30
"""Sockets that a process may have open at the end beyond those at the start."""


def grown(samples: list[Sample]) -> float:
    """Return the growth of memory after the warm-up, in MB a minute."""
    return slope(samples[int(len(samples) * WARM_UP) :])


def violations(soak: Soak) -> list[str]:
    """Return what may not be, memory and connections among it."""
    found = soak.violations
    for role, samples in soak.fleet.samples.items():
        if soak.seconds >= LONG_S and grown(samples) > MOST_GROWTH:
            found.append(f"the {role} process grows by {grown(samples):.1f} MB a minute")
        if samples and samples[-1].sockets > samples[0].sockets + MOST_SOCKETS:
            found.append(f"the {role} process has {samples[-1].sockets} sockets open at the end")
    return found


def report(soak: Soak) -> list[str]:
    """Return the lines of the report."""
    tally = soak.tally
    minutes = soak.seconds / 60
    return [
        f"{minutes:g} minutes, 2 API and 2 worker processes, {soak.users} users at once.",
        "",
        *_table(("what", "number"), _numbers(soak)),
        "",
        f"Kinds: {_list(tally.ended)}. Readers: {_list(tally.readers)}.",
        f"Done to the processes: {_list(soak.fleet.done)}.",
        "",
        *_table(
            ("process", "memory at the start", "after the warm-up", "at the end", "growth"),
            (_memory(role, samples) for role, samples in soak.fleet.samples.items()),
        ),
        "",
        "Violations: " + ("; ".join(violations(soak)) or "none") + ".",
    ]


def _numbers(soak: Soak) -> Iterable[tuple[object, ...]]:
    tally, samples = soak.tally, soak.fleet.samples
    yield "sessions started", tally.started.total()
    yield "sessions ended as they should", tally.ended.total()
    yield "sessions stuck", len(tally.stuck) + len(soak.left_open)
    yield "effects expected (`once`, `idempotent`)", tally.expected
    yield "effects seen by the tools", tally.seen
    yield "calls made again after a loss (`read`, `idempotent`, or verified)", tally.again
    yield "times a person was asked what became of a call", tally.asked_back
    yield "events written", tally.events
    yield "events lost by a reader", tally.lost
    yield "events repeated to a reader", tally.repeated
    yield "connections of readers", tally.connections
    yield "requests to the model out of order", len(soak.refused)
    yield "connections to Postgres, start and end", " and ".join(map(str, soak.backends))
    for role, taken in samples.items():
        at = f"{taken[0].sockets} and {taken[-1].sockets}" if taken else "none"
        yield f"sockets of the {role} process, start and end", at


def _memory(role: str, samples: list[Sample]) -> tuple[object, ...]:
    warm = samples[int(len(samples) * WARM_UP)]
    return (
        role,
        f"{samples[0].rss_mb:.0f} MB",
        f"{warm.rss_mb:.0f} MB",
        f"{samples[-1].rss_mb:.0f} MB",
        f"{grown(samples):+.2f} MB a minute",
    )


def _table(head: tuple[str, ...], body: Iterable[tuple[object, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *body]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def _list(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "nothing"
