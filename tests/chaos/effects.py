"""A server of tools that counts effects by what each is for, whatever calls it how often.

Every call carries an `op`: the name of one thing that is to be done. `look` reads, `put` has one
effect for each key; `pay`, `send` (which a person must approve) and `order` (whose status can be
asked) have one for each call that reaches them; `slow` never answers; `ask` is the client's own.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote

from tests.scripted.http import Hold, Request, Server, Step, response

EFFECTS: Final = {
    "look": "read",
    "put": "idempotent",
    "pay": "once",
    "send": "once",
    "order": "once",
    "slow": "read",
    "ask": "read",
}
OP: Final = {
    "type": "object",
    "properties": {"op": {"type": "string"}},
    "required": ["op"],
}


class Effects:
    """The server. A hold stops the calls of one op: `sent` before its effect, `done` after it."""

    def __init__(self) -> None:
        self._server = Server(self._handle)
        self.deliveries: Counter[str] = Counter()
        """Calls that came, by op."""
        self.effects: Counter[str] = Counter()
        """Effects, by op."""
        self.by_key: Counter[str] = Counter()
        """Effects, by the key of the call."""
        self.happened: set[str] = set()
        """The keys of calls that had an effect."""
        self.keys: defaultdict[str, set[str]] = defaultdict(set)
        """The keys under which an op was called."""
        self.holds: dict[tuple[str, str], Hold] = {}

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.__aexit__(kind, problem, trace)

    @property
    def connections(self) -> int:
        """Return how many connections are open."""
        return len(self._server.connections)

    def hold(self, stage: str, op: str) -> Hold:
        """Stop the calls of an op at a stage."""
        return self.holds.setdefault((stage, op), Hold())

    def specs(self, **timeouts: float) -> list[dict[str, object]]:
        """Return the tools as `POST /v1/tools` takes them, some with a timeout of their own."""
        return [
            self._spec(name, effect) | ({"timeout_s": timeouts[name]} if name in timeouts else {})
            for name, effect in EFFECTS.items()
        ]

    def _spec(self, name: str, effect: str) -> dict[str, object]:
        root = self._server.root
        spec: dict[str, object] = {
            "name": name,
            "kind": "client" if name == "ask" else "http",
            "description": f"The tool {name}.",
            "parameters": OP,
            "effect": effect,
        }
        if name != "ask":
            spec["http"] = {"method": "POST", "url": f"{root}/{name}"}
        if name == "send":
            spec["approval"] = "always"
        if name == "order":
            spec["status_check"] = {"url": f"{root}/status/{{idempotency_key}}"}
        return spec

    def _handle(self, request: Request) -> Iterator[Step]:
        tool, _, asked = request.path.strip("/").partition("/")
        if tool == "status":
            found = unquote(asked) in self.happened
            yield response(200, b'{"done": true}') if found else response(404, b"{}")
            return
        op = str(json.loads(request.body)["op"])
        key = request.headers.get("idempotency-key", "")
        self.deliveries[op] += 1
        self.keys[op].add(key)
        if ("sent", op) in self.holds:
            yield self.holds["sent", op]
        if tool == "slow":
            yield Hold()
        again = EFFECTS[tool] == "idempotent" and key in self.happened
        if EFFECTS[tool] != "read" and not again:
            self.effects[op] += 1
            self.by_key[key] += 1
        self.happened.add(key)
        if ("done", op) in self.holds:
            yield self.holds["done", op]
        yield response(200, json.dumps({"done": op}).encode())
