"""Metrics in a registry of their own, as Prometheus reads them.

Children are looked up once and kept; labels whose values come from users are bounded, so that no
tenant can make the number of series grow without end.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from app.core.events import (
    Body,
    Event,
    GuardTripped,
    ModelFailed,
    PhaseEntered,
    SecurityFlagged,
    ToolFinished,
    TurnEnded,
)
from app.core.faults import FaultKind
from app.core.state import State
from app.telemetry import names
from app.telemetry.stretch import ModelTried, Stretch, ToolTried, TurnOver

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
_TURN_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000, 10000)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_CALLS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_STEPS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 48, 100)
_US: Final = 1_000_000
OTHER: Final = "other"
UNKNOWN_TOOL: Final = "unknown"


class Bounded:
    """The first so many values are themselves, every further one is `other`."""

    def __init__(self, most: int) -> None:
        """Start with none."""
        self._most = most
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value as a label."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._most:
            return OTHER
        self._seen.add(value)
        return value


class _Counters:
    """A counter whose children are kept."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str) -> None:
        self._counter = Counter(name, text, names.METRICS[name], registry=registry)
        self._children: dict[tuple[str, ...], Counter] = {}

    def add(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._counter.labels(*labels) if labels else self._counter
            self._children[labels] = child
        child.inc(amount)


class _Histograms:
    """A histogram whose children are kept."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, buckets: Sequence[float]
    ) -> None:
        self._histogram = Histogram(
            name, text, names.METRICS[name], buckets=buckets, registry=registry
        )
        self._children: dict[tuple[str, ...], Histogram] = {}

    def observe(self, labels: tuple[str, ...], amount: float) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._histogram.labels(*labels)
            self._children[labels] = child
        child.observe(amount)


class Metrics:
    """Every metric of one process."""

    def __init__(self, provider: Callable[[str], str], *, max_names: int = 200) -> None:
        """Make the registry; `provider` names the vendor of a model."""
        self._provider = provider
        self._tool, self._agent = Bounded(max_names), Bounded(max_names)
        self._model = Bounded(max_names)
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._make_genai(registry)
        self._make_own(registry)
        self._make_gauges(registry)

    def _make_genai(self, registry: CollectorRegistry) -> None:
        seconds = "Seconds a model call took, by attempt."
        self._operation = _Histograms(registry, names.OPERATION_DURATION, seconds, _SECONDS)
        self._inference = _Histograms(registry, names.INFERENCE_DURATION, seconds, _SECONDS)
        self._tokens = _Histograms(registry, names.TOKEN_USAGE, "Tokens by call.", _TOKENS)
        self._invoke = _Histograms(
            registry, names.INVOKE_DURATION, "Seconds a turn took.", _TURN_SECONDS
        )
        self._calls = _Histograms(registry, names.INVOKE_CALLS, "Model calls by turn.", _CALLS)
        self._tool_calls = _Histograms(
            registry, names.INVOKE_TOOL_CALLS, "Tool calls by turn.", _CALLS
        )
        self._tool_time = _Histograms(
            registry, names.TOOL_DURATION, "Seconds a tool call took, by attempt.", _SECONDS
        )

    def _make_own(self, registry: CollectorRegistry) -> None:
        self._transitions = _Counters(registry, names.M_TRANSITIONS, "Transitions of the machine.")
        self._turns = _Counters(registry, names.M_TURNS, "Turns that ended, by reason.")
        self._steps = _Histograms(registry, names.M_STEPS, "Steps by turn.", _STEPS)
        self._outcomes = _Counters(registry, names.M_TOOL_CALLS, "Tool calls, by outcome.")
        self._failures = _Counters(registry, names.M_MODEL_FAILURES, "Failed model attempts.")
        self._guards = _Counters(registry, names.M_GUARDS, "Guards that acted.")
        self._cost = _Counters(registry, names.M_COST, "Money spent, in the price table's unit.")
        self._dropped = _Counters(registry, names.M_SPANS_DROPPED, "Spans that were not exported.")
        self._errors = _Counters(registry, names.M_TELEMETRY_ERRORS, "Commits not observed.")
        self._errors.add((), 0)
        for reason in ("queue_full", "export_failed", "shut_down"):
            self._dropped.add((reason,), 0)

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Callable[[float], None]:
            return Gauge(name, text, names.METRICS[name], registry=registry).set

        self.loop_lag = gauge(names.M_LOOP_LAG, "Seconds the event loop was late.")
        self.sessions_owned = gauge(names.M_OWNED, "Sessions this process owns.")
        self.redis_up = gauge(names.M_REDIS_UP, "Whether Redis answers.")
        text = "Sessions that break an invariant, as this process's auditor saw them last."
        labels = names.METRICS[names.M_VIOLATIONS]
        self._violations = Gauge(names.M_VIOLATIONS, text, labels, registry=registry)

    def violations(self, counted: Mapping[str, int]) -> None:
        """Say how many sessions break each invariant."""
        for invariant, count in counted.items():
            self._violations.labels(invariant).set(count)

    def telemetry_error(self) -> None:
        """Count a commit that could not be observed."""
        self._errors.add(())

    def spans_dropped(self, count: int, reason: str) -> None:
        """Count spans that no collector will see."""
        self._dropped.add((reason,), count)

    def committed(self, events: Sequence[Event], over: Sequence[Stretch], after: State) -> None:
        """Take note of one commit."""
        for event in events:
            body = event.body
            if type(body) in _COUNTED:
                self._count(body, after)
        for stretch in over:
            match stretch:
                case ModelTried():
                    self._model_tried(stretch)
                case ToolTried():
                    seconds = (stretch.end_us - stretch.start_us) / _US
                    labels = (self._tool(stretch.name), stretch.error or "")
                    self._tool_time.observe(labels, seconds)
                case TurnOver():
                    self._turn_over(stretch)
                case _:
                    pass

    def _count(self, body: Body, after: State) -> None:
        match body:
            case PhaseEntered(source, target):
                self._transitions.add(("" if source is None else source.value, target.value))
            case ToolFinished():
                self._outcomes.add((self._tool_label(body), body.outcome.value))
            case ModelFailed():
                self._failures.add((self._model(after.model.name), body.error.kind.value))
            case GuardTripped() | SecurityFlagged():
                self._guards.add((body.guard,))
            case TurnEnded():
                self._turns.add((body.stop_reason.value,))
            case _:
                pass

    def _tool_label(self, finished: ToolFinished) -> str:
        """Return the tool's name; names that a model made up share one label."""
        error = finished.error
        made_up = not finished.executed and error is not None and error.kind is FaultKind.NOT_FOUND
        return UNKNOWN_TOOL if made_up else self._tool(finished.name)

    def _model_tried(self, tried: ModelTried) -> None:
        name = tried.turn.created.model.name
        model, provider = self._model(name), self._provider(name)
        seconds = (tried.end_us - tried.start_us) / _US
        labels = (names.CHAT, provider, model, tried.error or "")
        self._operation.observe(labels, seconds)
        self._inference.observe(labels, seconds)
        usage = tried.usage
        if usage.tokens:
            self._tokens.observe((names.CHAT, provider, model, "input"), usage.input_tokens)
            self._tokens.observe((names.CHAT, provider, model, "output"), usage.output_tokens)
        if usage.cost:
            self._cost.add((model,), usage.cost)

    def _turn_over(self, over: TurnOver) -> None:
        agent = self._agent(over.turn.created.agent)
        ended = over.ended
        error = "" if ended.error is None else ended.error.kind.value
        self._invoke.observe((agent, error), (over.end_us - over.turn.at_us) / _US)
        self._calls.observe((agent,), ended.usage.model_calls)
        self._tool_calls.observe((agent,), ended.usage.tool_calls)
        self._steps.observe((agent,), over.step)

    def render(self) -> bytes:
        """Return every metric in the text format of Prometheus."""
        return generate_latest(self.registry)


_COUNTED: Final = frozenset(
    {PhaseEntered, ToolFinished, ModelFailed, GuardTripped, SecurityFlagged, TurnEnded}
)
