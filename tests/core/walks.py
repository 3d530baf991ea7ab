"""Random but plausible lives of a session, drawn step by step from what its state allows.

A life is told by its seed, so that one that breaks a law can be lived again.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from app.core.effects import CallModel, CallTool, CheckStatus, PrepareTurn
from app.core.events import CallMade, EffectClass, Finish, Limits, ModelRef, Policy, Usage
from app.core.faults import Fault, FaultKind
from app.core.lifecycle import Phase
from app.core.plan import owed
from tests.core.forks import fork
from tests.core.machine_kit import Machine, bad_call, call

PRICED: Final = ModelRef("m", context_window=2_000, price_input=1.0, price_output=2.0)
KINDS: Final = tuple(FaultKind)
OUTPUTS: Final[tuple[object, ...]] = ("a long enough result", "other", "", True, {"n": 1})
POLICIES: Final = (Policy.ENQUEUE, Policy.STEER, Policy.STEER, Policy.INTERRUPT, Policy.REJECT)


def limits(chance: Random) -> Limits:
    """Return limits of which some are narrow."""
    return Limits(
        max_steps=chance.choice([1, 2, 4, 8]),
        token_budget=chance.choice([300, 1_000, 100_000, 100_000, 100_000]),
        max_cost=chance.choice([None, None, 0.001, 1.0]),
        max_consecutive_errors=chance.choice([1, 2, 3, 5]),
        loop_threshold=chance.choice([2, 3]),
        max_repeat=chance.choice([1, 2, 3]),
        total_timeout_s=chance.choice([5.0, 90.0, 600.0]),
        max_tool_calls_per_step=chance.choice([1, 3, 5, 5]),
    )


def lived(seed: int, steps: int = 50, *, given: Limits | None = None) -> Machine:
    """Return a session after a life of some steps."""
    chance = Random(seed)
    model = PRICED if chance.random() < 0.5 else ModelRef("m")
    machine = Machine(given or limits(chance), model=model)
    for _ in range(chance.randint(1, steps)):
        walk(machine, chance)
    return machine


def forked(parent: Machine, seed: int, steps: int = 30) -> Machine:
    """Return a fork of it from anywhere, after a life of its own."""
    chance = Random(seed)
    task = chance.choice([None, "said at the fork"])
    child = fork(parent, chance.randint(1, len(parent.events)), task)
    child.claim(child.state.epoch + 1)
    for _ in range(chance.randint(1, steps)):
        walk(child, chance)
    return child


def some_call(chance: Random) -> CallMade:
    """Return one call: mostly sound, of few names and arguments, so that they meet again."""
    name = chance.choice(["echo", "search", "boom", "pay", "pay"])
    if one_in(chance, 15):
        return bad_call(name)
    if one_in(chance, 60):
        return call(name, fault=Fault.of(FaultKind.SECURITY, "twice outside its tools"))
    return call(
        name,
        {"x": chance.randint(0, 3)},
        effect=EffectClass.ONCE if name == "pay" else EffectClass.READ,
        polling=one_in(chance, 10),
        serial_group=chance.choice([None, None, "g"]),
        depends_on=chance.choice([(), (), (), ("echo",), ("pay",)]),
        needs_approval=one_in(chance, 4),
        approval_ttl_s=chance.choice([10.0, 60.0]),
        client=one_in(chance, 6),
        checkable=one_in(chance, 2),
    )


def walk(machine: Machine, chance: Random) -> None:
    """Give the session one plausible input."""
    machine.pass_s(chance.randint(0, 20) / 10)
    effects = owed(machine.state)
    if one_in(chance, 6):
        _from_outside(machine, chance)
    elif not effects:
        _at_rest(machine, chance)
    else:
        _answer(machine, chance)


def _answer(machine: Machine, chance: Random) -> None:
    """Answer one of the effects that are owed."""
    effect = chance.choice(owed(machine.state))
    match effect:
        case CallModel():
            _model(machine, chance)
        case CallTool():
            _tool(machine, effect.call.call_id, chance)
        case CheckStatus():
            happened = chance.choice([True, False, None, None])
            machine.check(effect.call.call_id, happened=happened)
        case PrepareTurn():
            machine.prepare()


def _model(machine: Machine, chance: Random) -> None:
    complete = one_in(chance, 2)
    missing = None if complete else "a date"
    some = [some_call(chance) for _ in range(chance.randint(1, 4))]
    fault = Fault.of(chance.choice(KINDS), "no")
    lost = Usage(20, 5, model_calls=1) if one_in(chance, 2) else Usage()
    weighted(
        chance,
        (12, lambda: machine.answer(*some, text=chance.choice(["", "hm"]))),
        (2, lambda: machine.answer(text=chance.choice(["an answer", " "]))),
        (1, lambda: machine.answer(finish=Finish("that is it", complete, 0.5, missing))),
        (1, lambda: machine.model_fails(fault, usage=lost)),
    )


def _tool(machine: Machine, which: str, chance: Random) -> None:
    if one_in(chance, 4):
        machine.fail(which, chance.choice(KINDS), sent=one_in(chance, 2))
    else:
        output = chance.choice(OUTPUTS)
        machine.ok(which, output, notable=isinstance(output, str) and len(output) > 16)


def _at_rest(machine: Machine, chance: Random) -> None:
    state = machine.state
    doubts = [c.call.call_id for c in state.calls if c.in_doubt]
    if state.phase is Phase.WAITING and not one_in(chance, 6):
        _somebody(machine, chance)
    elif doubts and one_in(chance, 3):
        machine.verify(doubts[0], happened=one_in(chance, 2))
    elif doubts:
        machine.pass_s(40)
        machine.claim(state.epoch + 1)
        machine.ring("verification")
    elif one_in(chance, 2):
        _say(machine, chance)
    else:
        machine.resume(chance.choice([None, Limits()]))


def _say(machine: Machine, chance: Random) -> None:
    """Say something that was not said before, so that it can be found again."""
    machine.tell(f"said at {machine.state.seq}", chance.choice(POLICIES))


def _somebody(machine: Machine, chance: Random) -> None:
    """Let one of those who are asked say something."""
    calls = machine.state.calls
    asked = [c for c in calls if c.unapproved or c.with_client or c.in_doubt]
    if not asked:
        return
    one = chance.choice(asked)
    which = one.call.call_id
    if one.unapproved:
        _decide(machine, which, chance)
    elif one.with_client:
        machine.caller(which, error=chance.choice([None, None, "not here"]))
    else:
        machine.verify(which, happened=one_in(chance, 2))


def _decide(machine: Machine, which: str, chance: Random) -> None:
    changed: dict[str, object] = {"x": chance.randint(0, 3)}
    weighted(
        chance,
        (4, lambda: machine.approve(which)),
        (3, lambda: machine.approve(which, changed)),
        (1, lambda: machine.deny(which, "not today")),
        (1, lambda: _lapse(machine)),
    )


def _lapse(machine: Machine) -> None:
    """Let time pass until an approval lapses; not all do, and only while the session waits."""
    machine.pass_s(11)
    machine.claim(machine.state.epoch + 1)
    machine.ring("approval")


def _from_outside(machine: Machine, chance: Random) -> None:
    weighted(
        chance,
        (4, lambda: _say(machine, chance)),
        (4, lambda: _somebody(machine, chance)),
        (4, lambda: machine.claim(machine.state.epoch + 1)),
        (1, lambda: _late(machine)),
        (1, lambda: machine.ring("verification")),
        (1, lambda: machine.ring("approval")),
        (1, machine.cancel),
        (1, lambda: machine.resume(Limits(max_steps=50))),
        (1, lambda: machine.verify("t1_c1_1", happened=True)),
        (1, lambda: one_in(chance, 4) and machine.close()),
    )


def _late(machine: Machine) -> None:
    machine.pass_s(6)
    machine.ring("total_timeout")


def one_in(chance: Random, n: int) -> bool:
    """Return True once in `n` times."""
    return chance.randrange(n) == 0


def weighted(chance: Random, *choices: tuple[int, Callable[[], object]]) -> None:
    """Do one of these, each as often as its weight says."""
    (do,) = chance.choices([c[1] for c in choices], [c[0] for c in choices])
    do()
