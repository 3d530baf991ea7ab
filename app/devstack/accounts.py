"""Under whose account Postgres runs, and which folders that account can reach.

An ordinary user runs it as himself. Root cannot (Postgres refuses), so there it is the account
`surefoot` when the machine has one, else `nobody`; an existing data folder keeps the owner it
has. Reachability is asked of the system, by a test as that account, so access lists and mounts
count as they are.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from app.devstack.errors import DevStackError

_CANDIDATES = ("surefoot", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """A system account that a server is run under."""

    name: str  # for messages
    uid: int  # the user id the process gets
    gid: int  # the account's primary group, its only one


def server_account(data: Path) -> Account | None:
    """The account for a Postgres with its cluster in `data`; None = the one we run under.

    `data` need not exist yet.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        owner = data.stat().st_uid
        try:
            return _account(pwd.getpwuid(owner))
        except KeyError:
            raise DevStackError(f"{data} belongs to user id {owner}, which has no name") from None
    for name in _CANDIDATES:
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            continue
    raise DevStackError(f"no unprivileged account found to run Postgres under: {_CANDIDATES}")


def can_enter(folder: Path, account: Account | None) -> bool:
    """Whether the account has search permission on `folder` and on all above it."""
    return run_as(account, ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]).returncode == 0


def run_as(account: Account | None, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a short command under the account, from `/`, and give back what it said."""
    try:
        # By way of the shell: a program the account cannot reach is then its exit code, and a
        # PermissionError can only mean that we may not change the account.
        return subprocess.run(
            ["/bin/sh", "-c", 'exec "$@"', "sh", *command],
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except PermissionError as error:
        who = account.name if account else "this user"
        raise DevStackError(f"cannot run {command[0]} as {who}: {error.strerror}") from error


def make_folder(folder: Path, account: Account | None, mode: int = 0o700) -> Path:
    """Make one folder and give it to the account; leave one that exists exactly as it is."""
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        return folder
    folder.chmod(mode)  # mkdir subtracts the umask
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    return folder


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
