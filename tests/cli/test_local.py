"""`dev`, `serve`, `migrate`, `settings`: the functions they call, and with what."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.cli.conftest import Surefoot

Calls = list[tuple[object, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stand-ins for the functions of the service's own module, which note how they were called."""
    seen: Calls = []
    module = ModuleType("app.main")
    for name, code in {"dev": 0, "serve": 3, "migrate": 1}.items():

        def function(*arguments: object, name: str = name, code: int = code) -> int:
            seen.append((name, *arguments))
            return code

        setattr(module, name, function)
    worker = ModuleType("app.worker")

    def work() -> int:
        seen.append(("work",))
        return 4

    worker.serve = work  # type: ignore[attr-defined] # a stand-in
    monkeypatch.setitem(sys.modules, "app.main", module)
    monkeypatch.setitem(sys.modules, "app.worker", worker)
    return seen


async def test_the_processes_get_their_arguments_and_give_their_code(
    surefoot: Surefoot, calls: Calls
) -> None:
    codes = [
        (await surefoot(*command.split())).code
        for command in (
            "dev",
            "dev --data here --host 127.0.0.2 --port 0",
            "serve",
            "serve --role worker",
            "migrate",
        )
    ]
    assert codes == [0, 0, 3, 4, 1]
    assert calls == [
        ("dev", None, None, None),
        ("dev", Path("here"), "127.0.0.2", 0),
        ("serve", "all"),
        ("work",),
        ("migrate",),
    ]


async def test_a_role_that_is_none_is_wrong_usage(surefoot: Surefoot, calls: Calls) -> None:
    ran = await surefoot("serve", "--role", "boss")
    assert (ran.code, calls) == (2, [])


class WrongSettingsError(Exception):
    """What the room raises."""


def settings_room(monkeypatch: pytest.MonkeyPatch, shown: Mapping[str, object] | Exception) -> None:
    def load() -> object:
        if isinstance(shown, Exception):
            raise shown
        return SimpleNamespace(warnings=["SUREFOOT_PROT: there is no such setting"])

    room = ModuleType("app.settings")
    vars(room).update(load=load, masked=lambda _loaded: shown, SettingsError=WrongSettingsError)
    monkeypatch.setitem(sys.modules, "app.settings", room)


@pytest.mark.req("OPS-3")
async def test_settings_are_shown_with_their_source(
    surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {"SUREFOOT_PORT": {"value": 8080, "source": "default"}}
    settings_room(monkeypatch, shown)
    ran = await surefoot("settings")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["setting", "value", "from"],
        ["SUREFOOT_PORT", "8080", "default"],
    ]
    assert ran.err.startswith("warning: SUREFOOT_PROT: there is no such setting\n")
    assert "SUREFOOT_URL" in ran.err
    assert "SUREFOOT_API_KEY" in ran.err
    assert json.loads((await surefoot("settings", "--json")).out) == shown


@pytest.mark.req("OPS-3")
async def test_wrong_settings_are_exit_2_in_words(
    surefoot: Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_room(monkeypatch, WrongSettingsError("SUREFOOT_PORT: must be a number"))
    ran = await surefoot("settings")
    assert (ran.code, "must be a number" in ran.err) == (2, True)


async def test_the_version_is_shown(surefoot: Surefoot) -> None:
    assert (await surefoot("--version")).out.startswith("surefoot 0.")
