"""Scripted events as the service sends them, in the golden order of a turn."""

from dataclasses import dataclass, field

Json = dict[str, object]

USAGE: Json = {"input_tokens": 120, "output_tokens": 18, "cached_tokens": 0}
ANSWER = "You pay 189.2."


@dataclass
class Journal:
    """Numbers events and gives them times a hundredth of a second apart."""

    events: list[Json] = field(default_factory=list)
    turn: int = 1
    step: int = 0
    phase: str | None = None

    def add(self, kind: str, **data: object) -> None:
        seq = len(self.events) + 1
        self.events.append(
            {
                "seq": seq,
                "type": kind,
                "v": 1,
                "at": f"2025-12-15T07:00:{seq // 100:02}.{seq % 100:02}0000Z",
                "turn": self.turn,
                "step": self.step,
                "phase": self.phase,
                "data": data,
            }
        )

    def move(self, target: str) -> None:
        source, self.phase = self.phase, target
        self.step += target == "THINK"
        self.add("phase.entered", **{"from": source, "to": target})

    def ask(self, **answer: object) -> None:
        self.add("model.requested", model="scripted", purpose="step", input_tokens=100, tools=[])
        self.add("model.answered", **{"text": "", "tool_calls": [], "usage": USAGE, **answer})

    def call(self, **finished: object) -> None:
        call_id = f"t{self.turn}_c{self.step}_1"
        arguments = {"expression": "299 * 0.8 - 50"}
        self.add("tool.intended", call_id=call_id, name="calculate", arguments=arguments)
        ok: Json = {"outcome": "ok", "output": {"result": 189.2}, "attempts": 1, "duration_ms": 3}
        self.add("tool.finished", call_id=call_id, **{**ok, **finished})

    def end(self, status: str = "completed", reason: str = "final_answer", **more: object) -> None:
        self.move("DONE")
        usage = {**USAGE, "model_calls": 2, "tool_calls": 1, "cost": 0.0}
        ended: Json = {"status": status, "stop_reason": reason, "usage": usage}
        self.add("turn.ended", **{**ended, "result": {"text": ANSWER, "data": None}, **more})

    def begin(self) -> None:
        self.phase = None
        self.add("turn.started", text="What do I pay?", tokens=5)
        self.move("OBSERVE")
        self.move("THINK")


def until_answer() -> Journal:
    """A turn with one tool call, up to the point where the second answer has come."""
    journal = Journal()
    journal.add("session.created", session_id="ses_1", agent="default", agent_version=1)
    journal.begin()
    journal.ask(tool_calls=[{"call_id": "t1_c1_1", "name": "calculate"}])
    journal.move("ACT")
    journal.call()
    journal.move("REFLECT")
    journal.add("step.finished", calls=1, succeeded=1, tokens=138)
    journal.move("OBSERVE")
    journal.move("THINK")
    journal.ask(text=ANSWER, finish_reason="stop")
    journal.move("REFLECT")
    journal.add("step.finished", calls=0, succeeded=0, tokens=276)
    return journal


def golden(status: str = "completed", reason: str = "final_answer", **more: object) -> list[Json]:
    """A whole turn with one tool call."""
    journal = until_answer()
    journal.end(status, reason, **more)
    return journal.events
