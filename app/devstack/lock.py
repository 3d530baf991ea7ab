"""A lock on a folder that ends with the process that holds it, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from app.devstack.errors import FolderInUseError


@contextmanager
def folder_lock(file: Path) -> Iterator[None]:
    """Hold an exclusive `flock` on the file, which stays, or raise FolderInUseError.

    The file holds the process id of who has the lock, for the message only.
    """
    with file.open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(f"{file.parent} is in use by {_holder(lock)}") from None
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        yield


def _holder(lock: BinaryIO) -> str:
    lock.seek(0)
    held_by = lock.read(20).decode(errors="replace")
    return f"process {held_by}" if held_by.isdecimal() else "another process"
