"""The pure floor: values and decisions, without IO, clock, chance, logging or async.

`machine.decide` takes every decision; `machine.evolve` only folds. See docs/architecture.md.
"""
