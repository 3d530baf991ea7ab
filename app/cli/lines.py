"""One line for each event, the same in `run --follow`, in plain output and in `trace`."""

from collections.abc import Callable
from typing import Final

from rich.text import Text

from app.cli import questions
from app.cli.values import Record, brief, integer, number, record, records, seconds, text

_ARGUMENTS: Final = 160
_OUTPUT: Final = 160
_OUTCOME_STYLES: Final = {"ok": "green", "error": "red", "unknown": "yellow"}
STATUS_STYLES: Final = {
    "completed": "bold green",
    "stopped": "bold yellow",
    "failed": "bold red",
    "cancelled": "bold magenta",
    "waiting": "bold cyan",
}
_QUIET: Final = frozenset({"session.created", "turn.started", "turn.ended", "session.claimed"})
"""Shown elsewhere: at the head and the foot, or of no use to a reader."""


class Narrator:
    """Puts events into words; it remembers names and times from the events before."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._names: dict[str, str] = {}
        self._with_client: set[str] = set()
        self._asked_at: float | None = None
        self._tellers: dict[str, Callable[[Record, Record], Text]] = {
            "phase.entered": self._phase,
            "model.requested": self._requested,
            "model.answered": self._answered,
            "model.failed": self._failed,
            "tool.intended": self._intended,
            "tool.attempted": self._attempted,
            "tool.finished": self._finished,
            "step.finished": self._step,
            "guard.tripped": self._guard,
            "message.received": self._message,
            "approval.requested": self._approval_requested,
            "approval.decided": self._approval_decided,
            "tool.checked": self._checked,
            "verification.decided": self._verified,
            "session.forked": self._forked,
        }

    def line(self, event: Record) -> Text | None:
        """Return the line for an event; None for those that have none."""
        kind = text(event.get("type"))
        if kind in _QUIET:
            return None
        return self._tellers.get(kind, _other)(event, record(event.get("data")))

    def _phase(self, _event: Record, data: Record) -> Text:
        source, target = text(data.get("from")), text(data.get("to"))
        return _line("phase", "blue", f"{source} → {target}" if source else f"→ {target}")

    def _requested(self, event: Record, data: Record) -> Text:
        self._asked_at = seconds(event.get("at"))
        name, tokens = brief(data.get("model"), 60), integer(data.get("input_tokens"))
        closing = " · closing call" if data.get("purpose") == "closing" else ""
        return _line("model ▸", "cyan", f"{name} · {tokens:,} tokens in the request{closing}")

    def _answered(self, event: Record, data: Record) -> Text:
        usage = record(data.get("usage"))
        parts = [_tokens(usage)]
        parts += [_took(took)] if (took := self._since_asked(event)) is not None else []
        asked = records(data.get("tool_calls"))
        calls = [brief(call.get("name"), 64) for call in asked]
        self._names |= {text(c.get("call_id")): brief(c.get("name"), 64) for c in asked}
        self._with_client |= {text(c.get("call_id")) for c in asked if c.get("client")}
        parts += [f"calls {', '.join(calls)}"] if calls else []
        parts += [brief(data.get("finish_reason"), 40)] if not calls else []
        return _line("model ◂", "cyan", " · ".join(part for part in parts if part))

    def _since_asked(self, event: Record) -> float | None:
        answered = seconds(event.get("at"))
        if answered is None or self._asked_at is None:
            return None
        return (answered - self._asked_at) * 1000

    def _failed(self, _event: Record, data: Record) -> Text:
        again = " · trying again" if data.get("retry_at_us") else ""
        attempt = integer(data.get("attempt"))
        return _line("model ✗", "red", f"attempt {attempt}: {_fault(data.get('error'))}{again}")

    def _intended(self, _event: Record, data: Record) -> Text:
        name, call_id = brief(data.get("name"), 64), text(data.get("call_id"))
        self._names[call_id] = name
        arguments = brief(data.get("arguments"), _ARGUMENTS)
        line = _line("tool  ▸", "yellow", f"{name} {arguments}")
        line.append(" · for the caller to carry out" if call_id in self._with_client else "")
        return line.append(f"  {brief(call_id, 40)}", style="dim")

    def _attempted(self, _event: Record, data: Record) -> Text:
        attempt, fault = integer(data.get("attempt")), _fault(data.get("error"))
        return _line("tool  ↻", "yellow", f"{self.name(data)} attempt {attempt} after {fault}")

    def _finished(self, _event: Record, data: Record) -> Text:
        outcome = text(data.get("outcome"))
        line = _line("tool  ◂", "yellow", f"{self.name(data)} ")
        line.append(brief(outcome, 20), style=_OUTCOME_STYLES.get(outcome, "magenta"))
        line.append(f" · {_took(number(data.get('duration_ms')))}", style="dim")
        attempts = integer(data.get("attempts"))
        line.append(f" · {attempts} attempts" if attempts > 1 else "", style="dim")
        result = data.get("output") if outcome == "ok" else data.get("error")
        shown = brief(result, _OUTPUT) if outcome == "ok" else _fault(result)
        return line.append(f" → {shown}" if shown else "")

    def name(self, data: Record) -> str:
        """Return the tool's name for a call that was seen before."""
        call_id = text(data.get("call_id"))
        return brief(data.get("name") or self._names.get(call_id, call_id), 64)

    def _step(self, event: Record, data: Record) -> Text:
        calls, succeeded = integer(data.get("calls")), integer(data.get("succeeded"))
        tools = f" · {succeeded}/{calls} calls ok" if calls else ""
        spent = f" · {integer(data.get('tokens')):,} tokens so far"
        return _line("step", "dim", f"{integer(event.get('step'))} finished{tools}{spent}")

    def _guard(self, _event: Record, data: Record) -> Text:
        stops = text(data.get("stop_reason"))
        does = f" · stops the turn: {stops}" if stops else " · warns the model"
        detail = brief(data.get("detail"), 200)
        return _line("guard !", "bold yellow", f"{brief(data.get('guard'), 40)}: {detail}{does}")

    def _message(self, _event: Record, data: Record) -> Text:
        return _line("message", "green", questions.message_received(data))

    def _approval_requested(self, _event: Record, data: Record) -> Text:
        return _line("ask   ▸", "bold cyan", questions.approval_requested(data))

    def _approval_decided(self, _event: Record, data: Record) -> Text:
        return _line("ask   ◂", "bold cyan", questions.approval_decided(self.name(data), data))

    def _checked(self, _event: Record, data: Record) -> Text:
        fault = _fault(data.get("fault"))
        return _line("tool  ?", "yellow", questions.tool_checked(self.name(data), data, fault))

    def _verified(self, _event: Record, data: Record) -> Text:
        return _line("tool  ?", "yellow", questions.verification_decided(self.name(data), data))

    def _forked(self, _event: Record, data: Record) -> Text:
        return _line("fork", "green", questions.session_forked(data))


def _other(event: Record, data: Record) -> Text:
    """Tell of a type this version does not know, or that needs no words of its own."""
    details = brief({k: v for k, v in data.items() if v not in (None, [], {})})
    return _line("event", "magenta", f"{brief(event.get('type'), 60)} {details}")


def _line(label: str, style: str, rest: str) -> Text:
    return Text(f"{label:<8}", style=style, end="").append(rest, style="default")


def _took(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"  # noqa: PLR2004 - a second


def _tokens(usage: Record) -> str:
    taken, given = integer(usage.get("input_tokens")), integer(usage.get("output_tokens"))
    cached = integer(usage.get("cached_tokens"))
    return f"{taken:,} tokens in{f' ({cached:,} cached)' if cached else ''}, {given:,} out"


def _fault(value: object) -> str:
    fault = record(value)
    kind, message = brief(fault.get("kind"), 40), brief(fault.get("message"), 200)
    return ": ".join(part for part in (kind, message) if part)


def totals(usage: Record) -> str:
    """Return what a turn or session used, in one line."""
    calls = integer(usage.get("model_calls")), integer(usage.get("tool_calls"))
    cost = number(usage.get("cost"))
    money = f" · cost {cost:.4f}" if cost else ""
    return f"{calls[0]} model calls · {calls[1]} tool calls · {_tokens(usage)}{money}"


def outcome_line(status: str, reason: str) -> Text:
    """Return a status with its reason, in the status's colour."""
    line = Text(brief(status, 20), style=STATUS_STYLES.get(status, "bold"))
    return line.append(f" · {brief(reason, 40)}" if reason else "", style="default")
