"""A lock on a folder that ends with the process that holds it, however it ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.devstack.errors import FolderInUseError


@contextmanager
def folder_lock(file: Path) -> Iterator[None]:
    """Hold an exclusive `flock` on the file, which stays, or raise FolderInUseError."""
    with file.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(f"{file.parent} is in use by another process") from None
        yield
