"""Tools: register, look at, change, withdraw, and try out."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices, ParsedTool
from app.api.invoking import LONGEST_S, invoke, timeout_s
from app.api.shapes.bodies import InvokeIn, checked
from app.api.shapes.tools import InvokedOut, ToolChangeIn, ToolIn, ToolList, ToolOut, ToolSaved
from app.api.wire import describing, params
from app.api.wire.answers import answer, as_json
from app.api.wire.body import read_object
from app.api.wire.routing import Keeps, Leftover, Operation
from app.core.events import EffectClass
from app.core.toolbox import ToolKind, ToolSpec
from app.runtime.refusals import Conflict, NotFound
from app.runtime.sessions.idempotency import Answer
from app.runtime.views import to_json

_INVOKE: Final = (
    "Really sends, also where a session would ask for approval: whoever calls this agrees to the "
    "call. A tool that fails is an answer with an `error`."
)


class ToolRoutes:
    """The operations on tools."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def register(self, request: Request) -> Response:
        """Register a tool under a new name."""
        body = await read_object(request, self._services.body_limit)
        parsed = await self._parsed(body, 1)
        name = parsed.spec.name
        found = (await self._services.catalog.current(TENANT, fresh=True)).get(name)
        saved = None if found else await self._save(parsed, create=True)
        if saved is None:
            detail = f"There is a tool {name!r} already; PUT /v1/tools/{name} changes it."
            raise Conflict(detail, "tool-exists")
        made = Answer(HTTPStatus.CREATED, self._saved(saved, parsed))
        return answer(made, location=f"/v1/tools/{quote(name, safe='')}")

    async def change(self, request: Request) -> Response:
        """Store the next version of a tool."""
        body = await read_object(request, self._services.body_limit)
        current = await self._changeable(params.tool_name(request))
        parsed = await self._parsed(body, current.version + 1, params.tool_name(request))
        saved = await self._save(parsed, create=False)
        if saved is None:
            raise Conflict("The tool was withdrawn meanwhile.", "tool-changed")
        return answer(Answer(HTTPStatus.OK, self._saved(saved, parsed)))

    async def delete(self, request: Request) -> Response:
        """Withdraw a tool; sessions that pinned it keep their version."""
        name = params.tool_name(request)
        await self._changeable(name)
        gone = await self._services.tool_store.delete(TENANT, name)
        self._services.catalog.forget(TENANT)
        if not gone:
            raise NotFound("tool", name)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def get(self, request: Request) -> Response:
        """Return the current version of a tool."""
        return as_json(self._services.describe_tool(await self._found(params.tool_name(request))))

    async def list(self, request: Request) -> Response:
        """Return a page of tools, by name."""
        limit, after = params.limit(request), params.text_filter(request, "after")
        tools = await self._services.catalog.current(TENANT, fresh=True)
        names = [name for name in sorted(tools) if after is None or name > after]
        shown = [self._services.describe_tool(tools[name]) for name in names[:limit]]
        more = names[limit - 1] if len(names) > limit else None
        return as_json({"data": shown, "next": more})

    async def invoke(self, request: Request) -> Response:
        """Try a tool out, outside any session."""
        content = await read_object(request, self._services.body_limit)
        body = checked(InvokeIn, content)
        spec = await self._found(params.tool_name(request))
        if spec.kind is ToolKind.CLIENT:
            detail = f"The tool {spec.name!r} is carried out by the client, not by this service."
            raise Conflict(detail, "tool-of-client")
        traceparent = params.traceparent(request)
        return answer(await invoke(self._services, spec, body.arguments, traceparent))

    async def left_by_invoke(self, request: Request) -> Leftover:
        """Return how long a call may last, and whether it does no harm when it is made again."""
        tools = await self._services.catalog.current(TENANT, fresh=True)
        spec = tools.get(params.tool_name(request))
        if spec is None:
            return Leftover(LONGEST_S, again=False)
        return Leftover(timeout_s(spec), again=spec.effect is EffectClass.READ)

    async def _parsed(
        self, body: dict[str, object], version: int, name: str | None = None
    ) -> ParsedTool:
        """Read a registration in a thread: checking a large schema takes a second and more."""
        return await asyncio.to_thread(self._services.parse_tool, body, version=version, name=name)

    async def _found(self, name: str) -> ToolSpec:
        found = (await self._services.catalog.current(TENANT, fresh=True)).get(name)
        if found is None:
            raise NotFound("tool", name[:80])
        return found

    async def _changeable(self, name: str) -> ToolSpec:
        found = await self._found(name)
        if found.kind is ToolKind.BUILTIN:
            raise Conflict(f"The tool {name!r} is built in.", "tool-built-in")
        return found

    async def _save(self, parsed: ParsedTool, *, create: bool) -> ToolSpec | None:
        saved = await self._services.tool_store.save(TENANT, parsed.spec, create=create)
        self._services.catalog.forget(TENANT)
        return saved

    def _saved(self, spec: ToolSpec, parsed: ParsedTool) -> bytes:
        lint: Mapping[str, object] = {
            "score": parsed.lint_score,
            "warnings": list(parsed.lint_warnings),
        }
        return to_json({"tool": self._services.describe_tool(spec), "lint": lint})

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._on_all(), *self._on_one())

    def _on_all(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/tools",
                id="registerTool",
                summary="Register a tool",
                endpoint=self.register,
                tag="tools",
                status=201,
                answers=ToolSaved,
                body=ToolIn,
                keeps=Keeps.REPEATABLE,
                refuses=(409,),
            ),
            Operation(
                method="GET",
                path="/v1/tools",
                id="listTools",
                summary="List tools by name, built-in ones too",
                endpoint=self.list,
                tag="tools",
                answers=ToolList,
                parameters=(describing.LIMIT, describing.AFTER),
            ),
        )

    def _on_one(self) -> tuple[Operation, ...]:
        path = "/v1/tools/{name}"
        return (
            Operation(
                method="GET",
                path=path,
                id="getTool",
                summary="Look at a tool",
                endpoint=self.get,
                tag="tools",
                answers=ToolOut,
                parameters=(describing.TOOL_NAME,),
                refuses=(404,),
            ),
            Operation(
                method="PUT",
                path=path,
                id="changeTool",
                summary="Store the next version of a tool",
                endpoint=self.change,
                tag="tools",
                answers=ToolSaved,
                body=ToolChangeIn,
                parameters=(describing.TOOL_NAME,),
                refuses=(404, 409),
            ),
            Operation(
                method="DELETE",
                path=path,
                id="deleteTool",
                summary="Withdraw a tool",
                detail="Sessions that run keep the version they began with.",
                endpoint=self.delete,
                tag="tools",
                status=204,
                parameters=(describing.TOOL_NAME,),
                refuses=(404, 409),
            ),
            Operation(
                method="POST",
                path=path + "/invoke",
                id="invokeTool",
                summary="Try a tool out, outside any session",
                detail=_INVOKE,
                endpoint=self.invoke,
                leaves=self.left_by_invoke,
                tag="tools",
                answers=InvokedOut,
                body=InvokeIn,
                parameters=(describing.TOOL_NAME,),
                refuses=(404,),
            ),
        )
