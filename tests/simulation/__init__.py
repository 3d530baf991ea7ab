"""The deterministic simulation: the real runtime on a seeded scheduler, clock and failing ports."""
