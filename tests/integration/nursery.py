"""A process that has imported the service and forks it: a start takes tens of milliseconds.

Importing the service and loading a tokenizer costs seconds of CPU; a test that kills thirty
processes would do little else. Each child is a real process with its own loop, sockets and pid;
what it runs is the `surefoot` command. One line of JSON in asks for a child, lines out tell its pid
and, later, how it ended. When the input ends every child is killed: a test run that dies leaves
nothing behind.
"""

import gc
import json
import os
import select
import signal
import sys
import traceback
from typing import Any, NoReturn

import app.main
import app.worker
from app.cli.main import main as surefoot
from app.providers import tokens
from app.providers.encodings import Encodings
from tests.integration.killable import arm, record
from tests.integration.points import Point
from tests.integration.without import take_out

COMMANDS = (app.main.serve, app.worker.serve)
"""Imported late by the command line, early here."""


def main() -> None:
    """Fork until the input ends."""
    _load_tokenizer()
    gc.freeze()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children: set[int] = set()
    buffer = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(children)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                children.add(_fork(json.loads(line)))
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _load_tokenizer() -> None:
    shared = Encodings()
    shared.load("o200k_base")
    vars(tokens)["Encodings"] = lambda: shared


def _reap(children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _fork(wanted: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(wanted)
    _tell({"id": wanted["id"], "pid": pid})
    return pid


def _tell(message: dict[str, object]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _become(wanted: dict[str, Any]) -> NoReturn:
    """Be the child: its own environment, its own log, then the command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(wanted["env"])
    code = 1
    try:
        if wanted["point"]:
            arm(Point.parse(wanted["point"]), wanted["action"], f"{wanted['log']}.struck")
        if wanted["record"]:
            record(wanted["record"], f"{wanted['log']}.points")
        for mechanism in wanted["without"]:
            take_out(mechanism)
        surefoot(wanted["argv"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - a child must never return into the loop of its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
