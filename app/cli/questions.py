"""Words for what people, callers and tools are asked about a call, and for what they answer."""

from app.cli.values import Record, brief, integer, moment, text

_DECISIONS = {"approve": "approved", "deny": "denied", "expired": "not decided in time"}
_ARGUMENTS = 160


def approval_requested(data: Record) -> str:
    """Tell which call needs an approval, and its id."""
    call = f"{brief(data.get('name'), 64)} {brief(data.get('arguments'), _ARGUMENTS)}"
    until = moment(data.get("expires_at_us"))
    return f"{call} needs an approval: {brief(data.get('approval_id'), 80)}, until {until}"


def approval_decided(name: str, data: Record) -> str:
    """Tell what was decided on a call, by whom, and what they changed or said."""
    decision = text(data.get("decision"))
    who = f" by {brief(data.get('by'), 64)}" if data.get("by") else ""
    changed = data.get("arguments")
    with_others = f" with {brief(changed, _ARGUMENTS)}" if changed is not None else ""
    said = f": {brief(data.get('message'), 200)}" if data.get("message") else ""
    return f"{name} {_DECISIONS.get(decision, brief(decision, 20))}{with_others}{who}{said}"


def tool_checked(name: str, data: Record, fault: str) -> str:
    """Tell that the outcome of a call is not known, and whether the tool is asked (again)."""
    attempt = integer(data.get("attempt"))
    asked = f"asked {attempt} times" if attempt > 1 else "asked once" if attempt else "not asked"
    again = (
        "" if data.get("retry_at_us") is None else "; it will be asked" + " again" * (attempt > 0)
    )
    return f"{name} may have happened ({fault}), {asked}{again}"


def verification_decided(name: str, data: Record) -> str:
    """Tell whether a call in doubt happened, and who knows."""
    happened = "happened" if data.get("happened") else "did not happen"
    who = "its status check" if data.get("by") == "status_check" else "a person"
    return f"{name} {happened}, says {who}"


def message_received(data: Record) -> str:
    """Tell what the user said, and what it is to do to a turn that runs."""
    does = {"steer": "steers this turn: ", "interrupt": "interrupts: "}
    return does.get(text(data.get("policy")), "") + brief(data.get("text"), 200)


def session_forked(data: Record) -> str:
    """Tell where the session comes from, and what was different there."""
    told = f"from {brief(data.get('parent'), 64)} after event {integer(data.get('at_seq'))}"
    for what in ("model", "prompt"):
        told += f" · the {what} there: {brief(data.get(what), 64)}" if data.get(what) else ""
    return told
