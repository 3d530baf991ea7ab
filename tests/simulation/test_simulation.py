"""The simulation under its own faults; the promise under all the others: test_many_runs.py."""

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import pytest

from tests.house.source import ROOT
from tests.simulation.plants import PLANTS
from tests.simulation.pool import PROCESSES, played, seeds_until_found
from tests.simulation.run import Outcome, simulate

SOON = 3000
"""Within how many seeds each planted fault must be found; how many it takes: docs/reliability.md"""
LATE = {
    "asked-too-early": 165,
    "deliveries-later": 366,
    "lapses-unread": 390,
    "looks-away": 182,
    "no-comparison": 146,
    "no-epoch-check": 337,
    "not-forestalled": 304,
}
"""Where the search for the rarest begins: at the run that found them last, to save a minute. Where
that run finds nothing any more, all the others are played."""


@pytest.fixture(scope="module")
def searches() -> Iterator[dict[str, Future[Outcome | None]]]:
    """Look for every planted fault, in processes of their own (coverage would slow them)."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        yield {
            plant: pool.submit(seeds_until_found, plant, SOON, LATE.get(plant, 0))
            for plant in PLANTS
        }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS)
def test_each_planted_fault_is_found(
    plant: str, searches: dict[str, Future[Outcome | None]]
) -> None:
    found = searches[plant].result()
    assert found is not None, f"{plant} was not found in {SOON} runs"
    assert f"PLANT={plant}" in found.told()


def test_a_seed_is_the_same_run_whatever_the_process_hashes_by() -> None:
    seeds = ("--seeds", "12", "--from", "300", "--hashes")

    def hashes(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *seeds],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout

    assert hashes("1") == hashes("4242")


def test_a_run_is_the_same_after_others_as_alone() -> None:
    alone = simulate(41).trace_hash
    played(range(35, 41))
    assert simulate(41).trace_hash == alone
    assert simulate(42).trace_hash != alone


def test_a_failure_says_how_to_play_it_again() -> None:
    found = seeds_until_found("act-then-append", 50)
    assert found is not None
    again = simulate(found.seed, PLANTS["act-then-append"])
    assert again.trace_hash == found.trace_hash
    assert f"make simulate SEED={found.seed} PLANT=act-then-append" in found.told()
    assert "VIOLATION" in found.told()


def test_runs_differ_in_what_goes_wrong() -> None:
    words = Counter(word for seed in range(60) for word in simulate(seed).weather.split())
    kinds = {word.partition("=")[0] for word in words}
    assert kinds >= {"calm", "unheard", "late", "kills", "freezes", "outages", "dropped"}
