"""Random but plausible lives of a session, drawn step by step from what its state allows."""

from collections.abc import Callable

from hypothesis import strategies as st

from app.core.effects import CallModel, CallTool, CheckStatus, PrepareTurn
from app.core.events import CallMade, EffectClass, Finish, Limits, Usage
from app.core.faults import Fault, FaultKind
from app.core.plan import owed
from tests.core.machine_kit import Machine, bad_call, call

KINDS = tuple(FaultKind)
OUTPUTS: tuple[object, ...] = ("a long enough result", "other", "", True, {"n": 1})
LIMITS = st.builds(
    Limits,
    max_steps=st.integers(1, 6),
    token_budget=st.sampled_from([300, 1_000, 100_000]),
    max_cost=st.sampled_from([None, 0.001, 1.0]),
    max_consecutive_errors=st.integers(1, 3),
    loop_threshold=st.integers(2, 3),
    max_repeat=st.integers(1, 3),
    total_timeout_s=st.sampled_from([5.0, 90.0]),
    max_tool_calls_per_step=st.integers(1, 5),
)


@st.composite
def calls(draw: st.DrawFn) -> CallMade:
    """Return one call: mostly sound, of few names and arguments, so that they meet again."""
    name = draw(st.sampled_from(["echo", "search", "boom", "pay"]))
    if draw(st.integers(0, 9)) == 0:
        return bad_call(name)
    if draw(st.integers(0, 30)) == 0:
        return call(name, fault=Fault.of(FaultKind.SECURITY, "twice outside its tools"))
    return call(
        name,
        {"x": draw(st.integers(0, 2))},
        effect=EffectClass.ONCE if name == "pay" else EffectClass.READ,
        polling=draw(st.integers(0, 9)) == 0,
        serial_group=draw(st.sampled_from([None, None, "g"])),
        depends_on=draw(st.sampled_from([(), (), ("echo",), ("pay",)])),
    )


def walk(machine: Machine, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
    """Give the session one plausible input."""
    machine.pass_s(draw(st.integers(0, 20)) / 10)
    if draw(st.integers(0, 5)) == 0:
        _from_outside(machine, draw)
        return
    effects = owed(machine.state)
    if not effects:
        _at_rest(machine, draw)
        return
    effect = effects[draw(st.integers(0, len(effects) - 1))]
    match effect:
        case CallModel():
            _model(machine, draw)
        case CallTool():
            _tool(machine, effect.call.call_id, draw)
        case PrepareTurn():
            machine.prepare()
        case CheckStatus():
            pass


def _model(machine: Machine, draw: Callable[..., int]) -> None:
    choice = draw(st.integers(0, 9))
    if choice < 6:
        some: list[CallMade] = draw(st.lists(calls(), min_size=1, max_size=4))  # type: ignore[assignment]
        machine.answer(*some, text="hm" if choice == 0 else "")
    elif choice == 6:
        machine.answer(text="an answer" if draw(st.booleans()) else " ")
    elif choice == 7:
        complete = bool(draw(st.booleans()))
        machine.answer(finish=Finish("that is it", complete, 0.5, None if complete else "a date"))
    else:
        kind = KINDS[draw(st.integers(0, len(KINDS) - 1))]
        lost = Usage(20, 5, model_calls=1) if draw(st.booleans()) else Usage()
        machine.model_fails(Fault.of(kind, "no"), usage=lost)


def _tool(machine: Machine, which: str, draw: Callable[..., int]) -> None:
    if draw(st.integers(0, 3)):
        output = OUTPUTS[draw(st.integers(0, len(OUTPUTS) - 1))]
        machine.ok(which, output, notable=isinstance(output, str) and len(output) > 16)
    else:
        kind = KINDS[draw(st.integers(0, len(KINDS) - 1))]
        machine.fail(which, kind, sent=bool(draw(st.booleans())))


def _at_rest(machine: Machine, draw: Callable[..., int]) -> None:
    doubts = [c.call.call_id for c in machine.state.calls if c.in_doubt]
    if doubts and draw(st.booleans()):
        machine.verify(doubts[0], happened=bool(draw(st.booleans())))
    elif doubts:
        machine.pass_s(40)
        machine.claim(machine.state.epoch + 1)
        machine.ring("verification")
    elif draw(st.booleans()):
        machine.tell()
    else:
        machine.resume(Limits() if draw(st.booleans()) else None)


def _from_outside(machine: Machine, draw: Callable[..., int]) -> None:
    inputs: tuple[tuple[int, Callable[[], object]], ...] = (
        (4, machine.tell),
        (4, lambda: machine.claim(machine.state.epoch + 1)),
        (2, lambda: _late(machine)),
        (1, lambda: machine.ring("verification")),
        (1, machine.cancel),
        (1, lambda: machine.resume(Limits(max_steps=50))),
        (1, lambda: machine.verify("t1_c1_1", happened=True)),
        (1, lambda: draw(st.booleans()) and machine.close()),
    )
    weighted = [give for weight, give in inputs for _ in range(weight)]
    weighted[draw(st.integers(0, len(weighted) - 1))]()


def _late(machine: Machine) -> None:
    machine.pass_s(6)
    machine.ring("total_timeout")
