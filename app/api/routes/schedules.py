"""Schedules: sessions created, or spoken to, at given times."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from app.api.deps import TENANT, ApiServices
from app.api.keyed import attempted
from app.api.shapes.bodies import NothingIn, checked
from app.api.shapes.schedules import (
    FiredOut,
    RunList,
    ScheduleIn,
    ScheduleList,
    ScheduleOut,
    run_json,
    schedule_json,
)
from app.api.wire import describing, params
from app.api.wire.answers import answer, as_json
from app.api.wire.body import read_object
from app.api.wire.routing import Keeps, Operation
from app.runtime.errors import KeyMissing, Tampered
from app.runtime.paging import cut
from app.runtime.sessions.idempotency import Answer
from app.runtime.side.schedule_records import MOST_RUNS, ScheduleRow, Target, open_target
from app.runtime.side.schedules import Asked
from app.runtime.views import to_json

_PATH = "/v1/schedules/{id}"


class ScheduleRoutes:
    """The operations on schedules."""

    def __init__(self, services: ApiServices) -> None:
        """Use these services."""
        self._services = services

    async def create(self, request: Request) -> Response:
        """Store a schedule."""
        content = await read_object(request, self._services.body_limit)
        asked = await self._asked(checked(ScheduleIn, content))
        row = await self._services.schedules.create(TENANT, asked)
        made = Answer(HTTPStatus.CREATED, self._shown(row))
        return answer(made, location=f"/v1/schedules/{row.id}")

    async def list(self, request: Request) -> Response:
        """Return a page of schedules, newest first."""
        limit = params.limit(request)
        rows = await self._services.schedule_store.page(
            TENANT, after=params.cursor(request, "schedule"), limit=limit + 1
        )
        found, following = cut(rows, limit)
        shown = [schedule_json(row, self._target(row)) for row in found]
        return as_json({"data": shown, "next": following})

    async def get(self, request: Request) -> Response:
        """Return a schedule."""
        row = await self._services.schedules.get(TENANT, params.path_id(request, "schedule"))
        return as_json(schedule_json(row, self._target(row)))

    async def change(self, request: Request) -> Response:
        """Replace a schedule."""
        schedule_id = params.path_id(request, "schedule")
        content = await read_object(request, self._services.body_limit)
        asked = await self._asked(checked(ScheduleIn, content))
        row = await self._services.schedules.change(TENANT, schedule_id, asked)
        return as_json(schedule_json(row, self._target(row)))

    async def delete(self, request: Request) -> Response:
        """Remove a schedule."""
        await self._services.schedules.delete(TENANT, params.path_id(request, "schedule"))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def pause(self, request: Request) -> Response:
        """Let it fire no more until it is resumed."""
        return await self._switched(request, self._services.schedules.pause)

    async def resume(self, request: Request) -> Response:
        """Let it fire again."""
        return await self._switched(request, self._services.schedules.resume)

    async def _switched(
        self, request: Request, switch: Callable[[str, str], Awaitable[ScheduleRow]]
    ) -> Response:
        schedule_id = params.path_id(request, "schedule")
        content = await read_object(request, self._services.body_limit, optional=True)
        checked(NothingIn, content)
        return answer(Answer(HTTPStatus.OK, self._shown(await switch(TENANT, schedule_id))))

    async def fire(self, request: Request) -> Response:
        """Do now what the schedule does."""
        schedule_id = params.path_id(request, "schedule")
        attempt, content = await attempted(request, self._services, optional=True)
        checked(NothingIn, content)
        return answer(await self._services.schedules.fire(TENANT, schedule_id, attempt))

    async def runs(self, request: Request) -> Response:
        """Return the latest runs of a schedule, newest first."""
        row = await self._services.schedules.get(TENANT, params.path_id(request, "schedule"))
        limit = min(params.limit(request), MOST_RUNS)
        runs = await self._services.schedule_store.runs(row.id, limit)
        return as_json({"data": [run_json(run) for run in runs], "next": None})

    async def _asked(self, body: ScheduleIn) -> Asked:
        """Read the times in a thread: to know that a cron never fires takes 10 ms and more."""
        return await asyncio.to_thread(body.asked, self._services.clock.now_us())

    def _target(self, row: ScheduleRow) -> Target | None:
        """Return what it does, None when that does not open here: it must not hide the others."""
        try:
            return open_target(self._services.keyring, row)
        except (KeyMissing, Tampered):
            return None

    def _shown(self, row: ScheduleRow) -> bytes:
        return to_json(schedule_json(row, self._target(row)))

    def operations(self) -> tuple[Operation, ...]:
        """Return the operations."""
        return (*self._on_all(), *self._on_one(), *self._verbs())

    def _on_all(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/v1/schedules",
                id="createSchedule",
                summary="Create or speak to sessions at given times",
                endpoint=self.create,
                tag="schedules",
                status=201,
                answers=ScheduleOut,
                body=ScheduleIn,
                refuses=(409,),
            ),
            Operation(
                method="GET",
                path="/v1/schedules",
                id="listSchedules",
                summary="List schedules, newest first",
                endpoint=self.list,
                tag="schedules",
                answers=ScheduleList,
                parameters=(describing.LIMIT, describing.AFTER),
            ),
        )

    def _on_one(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path=_PATH,
                id="getSchedule",
                summary="Look at a schedule",
                endpoint=self.get,
                tag="schedules",
                answers=ScheduleOut,
                parameters=(describing.SCHEDULE_ID,),
                refuses=(404,),
            ),
            Operation(
                method="PUT",
                path=_PATH,
                id="changeSchedule",
                summary="Replace a schedule",
                detail="A firing that is due and not made yet is made by what it says now, if its "
                "times stay the same, else not at all.",
                endpoint=self.change,
                tag="schedules",
                answers=ScheduleOut,
                body=ScheduleIn,
                parameters=(describing.SCHEDULE_ID,),
                refuses=(404,),
            ),
            Operation(
                method="DELETE",
                path=_PATH,
                id="deleteSchedule",
                summary="Remove a schedule; the sessions it made stay",
                endpoint=self.delete,
                tag="schedules",
                status=204,
                parameters=(describing.SCHEDULE_ID,),
                refuses=(404,),
            ),
            Operation(
                method="GET",
                path=_PATH + "/runs",
                id="listRuns",
                summary="List the latest runs of a schedule, newest first",
                endpoint=self.runs,
                tag="schedules",
                answers=RunList,
                parameters=(describing.SCHEDULE_ID, describing.LIMIT),
                refuses=(404,),
            ),
        )

    def _verbs(self) -> tuple[Operation, ...]:
        return (
            self._verb("pause", self.pause, "Let a schedule fire no more until it is resumed"),
            self._verb("resume", self.resume, "Let a schedule fire again from now on"),
            Operation(
                method="POST",
                path=_PATH + "/fire",
                id="fireSchedule",
                summary="Do now what the schedule does, out of turn",
                endpoint=self.fire,
                tag="schedules",
                status=201,
                answers=FiredOut,
                also={202: "The session was spoken to"},
                body=NothingIn,
                optional_body=True,
                keeps=Keeps.ENDPOINT,
                parameters=(describing.SCHEDULE_ID,),
                refuses=(404, 409),
            ),
        )

    def _verb(
        self, verb: str, endpoint: Callable[[Request], Awaitable[Response]], summary: str
    ) -> Operation:
        return Operation(
            method="POST",
            path=f"{_PATH}/{verb}",
            id=f"{verb}Schedule",
            summary=summary,
            endpoint=endpoint,
            tag="schedules",
            answers=ScheduleOut,
            body=NothingIn,
            optional_body=True,
            keeps=Keeps.REPEATABLE,
            parameters=(describing.SCHEDULE_ID,),
            refuses=(404, 409),
        )
