"""Where a process listens, and what it says of itself."""

import socket
from pathlib import Path

import pytest

from app.bootstrap.door import bound, command_name, greeting, port_of
from app.settings import Settings, StartError


def test_a_port_in_use_is_said_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(StartError, match=f"port {port} .*in use") as refused,
            bound("127.0.0.1", port),
        ):
            pass
    assert "SUREFOOT_PORT" in refused.value.todo
    with bound("127.0.0.1", port) as sockets:
        assert port_of(sockets) == port


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(StartError, match="cannot listen"), bound(host, 0):
        pass


def test_the_greeting_names_the_port_that_was_bound() -> None:
    said = greeting(Settings(port=0), 4711, "/elsewhere/bin/surefoot")
    assert "/elsewhere/bin/surefoot --url http://127.0.0.1:4711 run" in said
    assert "prefer: wait=10" in said
    assert "authorization" not in said
    assert "--url" not in greeting(Settings(), 8080, "x/surefoot")


def test_the_greeting_says_how_to_give_the_key() -> None:
    said = greeting(Settings(host="0.0.0.0", auth="on", admin_key="0" * 16), 8080, "surefoot")  # noqa: S104 - shown only
    assert "SUREFOOT_API_KEY" in said
    assert "authorization: Bearer" in said
    assert "//0.0." not in said


def test_the_command_is_called_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert command_name(str(tmp_path / ".venv/bin/surefoot")) == ".venv/bin/surefoot"
    assert command_name(".venv/bin/surefoot") == ".venv/bin/surefoot"
    assert command_name("/x/app/cli/main.py") == "python -m app.cli.main"
