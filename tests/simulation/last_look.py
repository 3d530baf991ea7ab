"""What can only be said of a whole run, once it is at rest."""

from app.core.events import EffectClass
from app.core.lifecycle import StopReason
from app.runtime.ports.journal import Snapshot
from tests.simulation.cluster import Cluster
from tests.simulation.users import User


def last_look(cluster: Cluster, users: list[User]) -> None:
    """What can only be said of a whole run."""
    audit = cluster.audit
    for why in cluster.died_by_themselves():
        audit.fail(f"a worker died by itself: {why}")
    cluster.promises.last_look()
    made = len(users) + sum(user.forks for user in users) + cluster.promises.fired.total()
    if len(cluster.store.rows) != made:
        audit.fail(f"{made} sessions were made, there are {len(cluster.store.rows)}")
    for session_id, text in audit.accepted:
        state = audit.ledger(session_id).state
        ended = state.ended if state is not None else None
        barred = ended is not None and ended.reason is StopReason.SECURITY
        if not audit.ledger(session_id).messages[text] and not barred:
            audit.fail(f"{session_id}: the message {text!r} was accepted and is lost")
    _effects(cluster)
    _observed(cluster)
    _folds(cluster)


def _effects(cluster: Cluster) -> None:
    """Count effects of `once` calls: a call, and an action in a turn, has at most one."""
    audit = cluster.audit
    by_action: dict[tuple[str, int, str], list[str]] = {}
    for key, times in cluster.outside.effects.items():
        session_id, _, call_id = key.partition(":")
        ledger = audit.ledger(session_id)
        if ledger.intended.get(call_id) is not EffectClass.ONCE:
            continue
        if times > 1:
            audit.fail(f"once: {key} took effect {times} times")
        turn = ledger.root(int(call_id[1:].split("_")[0]))
        action = session_id, turn, cluster.outside.actions[key]
        by_action.setdefault(action, []).append(call_id)
    for (session_id, turn, _), calls in by_action.items():
        if len(calls) > 1:
            audit.fail(f"once: in turn {turn} of {session_id} {calls} are one action")


def _observed(cluster: Cluster) -> None:
    """Whoever wrote an event and lives has told of it, unless another took over at once."""
    audit = cluster.audit
    undisturbed = {p.name for p in cluster.processes if p.undisturbed}
    for session_id, ledger in audit.ledgers.items():
        seen = audit.observed_until.get(session_id, {})
        for seq, (_, writer, epoch) in enumerate(ledger.told, start=1):
            last_epoch = epoch == ledger.epoch
            if seq > 2 and seq not in seen and last_epoch and writer in undisturbed:
                audit.fail(f"{session_id}: {writer} wrote {seq} and told nobody")


def _folds(cluster: Cluster) -> None:
    """Compare what owners had in memory, and the copies of it, with the folds of the journals."""
    audit = cluster.audit
    for session_id, ledger in audit.ledgers.items():
        live, fold = audit.live.get(session_id), ledger.state
        if live is not None and fold is not None and live.seq == fold.seq and live != fold:
            audit.fail(f"{session_id}: the live state is not the fold of its journal")
        for copies in (cluster.redis.hot, cluster.store.snapshots):
            copy: Snapshot | None = copies.get(session_id)
            if copy is None or fold is None or copy.seq != fold.seq:
                continue
            if ledger.sealer.restore(copy) != fold:
                audit.fail(f"{session_id}: a copy is not the fold of its journal")
