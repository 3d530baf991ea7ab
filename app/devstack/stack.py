"""Postgres and Valkey together, on one data folder."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from app.devstack.lock import folder_lock
from app.devstack.places import prepare_data_folder
from app.devstack.postgres import PostgresHandle, embedded_postgres_server
from app.devstack.valkey import ValkeyHandle, embedded_valkey_server


class DevStack:
    """Both servers for the length of an `async with`, on a folder locked against others.

    Attributes:
        data: The data folder, absolute; it exists once the block is entered.
        postgres: The database server, with the data in the folder.
        valkey: The copies' server, empty at each start.
    """

    data: Path
    postgres: PostgresHandle
    valkey: ValkeyHandle

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        """Nothing starts here. `durable=False` is for data that may be lost with the machine."""
        self.data = data_dir
        self._durable = durable
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Lock the folder, start both at the same time, return when both answer."""
        async with AsyncExitStack() as stack:
            self.data = await asyncio.to_thread(prepare_data_folder, self.data)
            stack.enter_context(folder_lock(self.data / "lock"))
            self.valkey = await stack.enter_async_context(
                embedded_valkey_server(log=self.data / "valkey.log")
            )
            self.postgres = await stack.enter_async_context(
                embedded_postgres_server(self.data, durable=self._durable)
            )
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop both and give the folder back."""
        await self._exit.__aexit__(kind, error, trace)
