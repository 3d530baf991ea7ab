"""A server of tools that counts effects by what each is for, whatever calls it how often.

Every call carries an `op`: the name of one thing that is to be done. `look` reads, `put` has one
effect for each key, `pay` has one for each call that reaches it, `slow` never answers.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.scripted.http import Hold, Request, Server, Step, response

EFFECTS = {"look": "read", "put": "idempotent", "pay": "once", "slow": "read"}


class Effects:
    """The server. A hold stops the calls of one op: `sent` before its effect, `done` after it."""

    def __init__(self) -> None:
        self._server = Server(self._handle)
        self.deliveries: Counter[str] = Counter()
        """Calls that came, by op."""
        self.effects: Counter[str] = Counter()
        """Effects, by op."""
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

    def specs(self) -> list[dict[str, object]]:
        """Return the tools as `POST /v1/tools` takes them."""
        return [
            {
                "name": name,
                "kind": "http",
                "description": f"The tool {name}.",
                "parameters": {
                    "type": "object",
                    "properties": {"op": {"type": "string"}},
                    "required": ["op"],
                },
                "http": {"method": "POST", "url": f"{self._server.root}/{name}"},
                "effect": effect,
            }
            for name, effect in EFFECTS.items()
        ]

    def _handle(self, request: Request) -> Iterator[Step]:
        tool = request.path.strip("/")
        op = str(json.loads(request.body)["op"])
        key = request.headers.get("idempotency-key", "")
        self.deliveries[op] += 1
        self.keys[op].add(key)
        if ("sent", op) in self.holds:
            yield self.holds["sent", op]
        if tool == "slow":
            yield Hold()
        if tool == "pay" or (tool == "put" and key not in self.happened):
            self.effects[op] += 1
        self.happened.add(key)
        if ("done", op) in self.holds:
            yield self.holds["done", op]
        yield response(200, json.dumps({"done": op}).encode())
