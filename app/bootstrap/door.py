"""The door of a server process: the sockets it listens on, and what `dev` says once it is open."""

import errno
import resource
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from app.settings import Settings, StartError

PORT: Final = "SUREFOOT_PORT"
HEALTH_PORT: Final = "SUREFOOT_HEALTH_PORT"

_OWN_FILES: Final = 512
"""Files and sockets of a process besides its clients': databases, models, tools, logs."""

_DEFAULT: Final = "http://127.0.0.1:8080"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - read, not bound
_TASK: Final = "a product costs 299, 20 % off, then minus 50, how much is it?"


@contextmanager
def bound(host: str, port: int, setting: str = PORT) -> Iterator[list[socket.socket]]:
    """Bind every address of a host, without listening yet; `setting` is where the port was chosen.

    Raises:
        StartError: when the port is taken or the address is none of this machine's.

    """
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        try:
            for family, address in _addresses(host, port):
                sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                if _bind(sock, address):
                    sockets.append(sock)
        except OSError as error:
            raise _refusal(host, port, setting, error) from None
        if not sockets:
            none = OSError(errno.EADDRNOTAVAIL, "no address of this machine")
            raise _refusal(host, port, setting, none)
        yield sockets


def connections_within(most: int) -> int:
    """Let this process open as many files as the system allows; return what is left for clients.

    A process without a free file can accept nobody, so it can't even say that it is full.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - _OWN_FILES))


def port_of(sockets: list[socket.socket]) -> int:
    """Return the port that was bound, also where 0 was asked for."""
    return int(sockets[0].getsockname()[1])


def _addresses(
    host: str, port: int
) -> Iterator[tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]]:
    found = socket.getaddrinfo(
        host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # Each family would get another port where the system chooses.
    for family, _, _, _, address in found if port else found[:1]:
        if family in {socket.AF_INET, socket.AF_INET6}:
            yield family, address  # type: ignore[misc] # of these two families


def _bind(sock: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]) -> bool:
    """Bind; False where the machine lacks this address, as `::1` without IPv6."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        sock.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return False
        raise
    return True


def _refusal(host: str, port: int, setting: str, error: OSError) -> StartError:
    also = " (`dev` also takes --port)" if setting == PORT else ""
    if error.errno == errno.EADDRINUSE:
        return StartError(
            f"Surefoot cannot start: port {port} on {host} is in use by another process.",
            f"Stop that one, or choose another port with {setting}{also}.",
        )
    also = " (`dev` also takes --host and --port)" if setting == PORT else ""
    return StartError(
        f"Surefoot cannot start: it cannot listen on {host} port {port} ({error.strerror}).",
        f"SUREFOOT_HOST and {setting} say where{also}.",
    )


def greeting(settings: Settings, port: int, started_as: str) -> str:
    """Return what `dev` says: where it serves, with which model, and commands that work there."""
    host = _EVERYWHERE.get(settings.host, settings.host).strip("[]")
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    command = command_name(started_as) + ("" if url == _DEFAULT else f" --url {url}")
    key, header = "", ""
    if settings.auth_on:
        key = "\n  export SUREFOOT_API_KEY=…        # the value of SUREFOOT_ADMIN_KEY"
        header = ' -H "authorization: Bearer $SUREFOOT_API_KEY"'
    return f"""
Surefoot serves {url} with {_model(settings)}.

Try next, in another terminal:{key}
  {command} run --follow "{_TASK}"
  curl -s {url}/v1/sessions -H 'content-type: application/json' -H 'prefer: wait=10'{header} \\
    -d '{{"task": "{_TASK}"}}'
  open {url}/docs

"""


def _model(settings: Settings) -> str:
    if settings.llm_model is not None and settings.llm_base_url is not None:
        return settings.llm_model
    if settings.models_file is not None:
        return f"the models of {settings.models_file}"
    return "the built-in demo model (set SUREFOOT_LLM_BASE_URL for a real one)"


def command_name(started_as: str) -> str:
    """Return how to call the command from the same folder, given how it was called."""
    path = Path(started_as)
    if path.name != "surefoot":
        return "python -m app.cli.main"
    on_path = shutil.which("surefoot")
    if on_path is not None and Path(on_path).resolve() == path.resolve():
        return "surefoot"
    here = Path.cwd()
    whole = here / path
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
