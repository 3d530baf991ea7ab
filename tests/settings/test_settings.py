"""The knobs: where they come from, what is refused, what is never shown (OPS-3)."""

import base64
import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.core.events import Limits
from app.settings import SettingsError, load, masked

KEY = base64.b64encode(b"k" * 32).decode()
pytestmark = pytest.mark.req("OPS-3")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("SUREFOOT_"):
            monkeypatch.delenv(name)


def _set(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"SUREFOOT_{name}", value)


def _faults() -> str:
    with pytest.raises(SettingsError) as caught:
        load()
    return "\n".join(caught.value.faults)


def test_the_defaults_are_those_of_the_contract() -> None:
    loaded = load()
    settings = loaded.settings
    assert (settings.host, settings.port, settings.lease_s) == ("127.0.0.1", 8080, 15.0)
    assert settings.limits == Limits()
    assert settings.stream_ping_s == 15.0
    assert settings.body_limit == 1024 * 1024
    assert loaded.warnings == ()
    assert set(loaded.sources.values()) == {"default"}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().settings.port = 1  # type: ignore[misc] # that it cannot be set is the point


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", 'port = 9001\nauth = "on"\nadmin_key = "0123456789abcdef"\n'),
        (".yaml", "port: 9001\nauth: on\nadmin_key: 0123456789abcdef\n"),
        (".json", '{"port": 9001, "auth": "on", "admin_key": "0123456789abcdef"}'),
    ],
)
def test_the_environment_wins_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str, text: str
) -> None:
    file = tmp_path / f"surefoot{suffix}"
    file.write_text(text)
    _set(monkeypatch, CONFIG=str(file))
    assert load().settings.port == 9001
    assert load().settings.auth_on
    _set(monkeypatch, PORT="9002")
    loaded = load()
    assert loaded.settings.port == 9002
    assert loaded.sources["port"] == "environment"
    assert loaded.sources["auth"] == "file"
    assert loaded.sources["host"] == "default"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "port = ", "not well-formed"),
        ("a.ini", "port = 1", "not .toml, .yaml or .json"),
        ("a.json", "[1]", "must hold names and values"),
        ("a.yaml", "prot: 1", "is port meant?"),
        ("a.yaml", "port: [", "not well-formed"),
    ],
)
def test_a_file_that_cannot_be_used_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    _set(monkeypatch, CONFIG=str(tmp_path / name))
    assert said in _faults()


def test_a_file_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, CONFIG="/nowhere/surefoot.toml")
    assert "cannot be read" in _faults()


def test_a_base_url_without_a_model_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, LLM_BASE_URL="http://127.0.0.1:9000/v1")
    assert "SUREFOOT_LLM_MODEL" in _faults()
    _set(monkeypatch, LLM_MODEL="gpt-x")
    assert load().settings.llm_model == "gpt-x"


def test_a_short_admin_key_is_said_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, ADMIN_KEY="short")
    assert "SUREFOOT_ADMIN_KEY: must have 16 characters or more" in _faults()


@pytest.mark.parametrize("value", ["here", "127.0.0.1/8", "10.0.0.0/8,,x"])
def test_a_wrong_network_is_one_line_with_an_example(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    _set(monkeypatch, EGRESS_ALLOW=value)
    said = _faults()
    assert said.count("SUREFOOT_EGRESS_ALLOW") == 1
    assert "127.0.0.0/8" in said


def test_a_model_without_a_base_url_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, LLM_MODEL="gpt-x")
    assert "SUREFOOT_LLM_BASE_URL" in _faults()
    _set(monkeypatch, MODELS_FILE="models.json")
    assert load().settings.llm_model == "gpt-x"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_a_loopback_bind_is_open_by_default(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    _set(monkeypatch, HOST=host)
    assert not load().settings.auth_on


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "surefoot.example"])  # noqa: S104 - what is refused
def test_any_other_bind_needs_a_key_or_the_word_off(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    _set(monkeypatch, HOST=host)
    said = _faults()
    assert "SUREFOOT_ADMIN_KEY" in said
    assert "SUREFOOT_AUTH=off" in said
    _set(monkeypatch, AUTH="OFF")
    assert not load().settings.auth_on
    _set(monkeypatch, AUTH="", ADMIN_KEY="0123456789abcdef")
    assert load().settings.auth_on


def test_auth_on_needs_a_key_on_loopback_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, AUTH="on")
    assert "SUREFOOT_ADMIN_KEY" in _faults()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("abc", "id:base64"),
        (f"a:{KEY},a:{KEY}", "different ids"),
        ("a:###", "not base64"),
        ("a:aGVsbG8=", "32 bytes"),
    ],
)
def test_encryption_keys_are_checked_and_never_quoted(
    monkeypatch: pytest.MonkeyPatch, keys: str, said: str
) -> None:
    _set(monkeypatch, ENCRYPTION_KEYS=keys)
    faults = _faults()
    assert said in faults
    assert "aGVsbG8=" not in faults
    assert KEY not in faults


def test_serve_says_all_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(load().serve_faults()) == 3
    _set(
        monkeypatch,
        DATABASE_URL="postgresql://u:p@db/x",
        REDIS_URL="redis://r",
        ENCRYPTION_KEYS=f"b:{KEY},a:{KEY}",
    )
    assert load().serve_faults() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("LEASE_S", "1"),
        ("POOL_SIZE", "0"),
        ("MAX_STEPS", "101"),
        ("EGRESS_ALLOW", "10.0.0.0/8,nonsense"),
        ("LOG_LEVEL", "loud"),
        ("AUTH", "maybe"),
        ("LLM_BASE_URL", "127.0.0.1:9000"),
        ("LLM_BASE_URL", "https://bob:pw@llm/v1"),
        ("LISTEN_DATABASE_URL", "postgresql://db"),
        ("TOKEN_BUDGET", "2000001"),
        ("TOTAL_TIMEOUT_S", "3601"),
        ("TOOL_TIMEOUT_S", "601"),
        ("POOLER", "session"),
        ("ADMIN_KEY", "short"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    _set(monkeypatch, **{name: value})
    assert f"SUREFOOT_{name}" in _faults()


def test_every_fault_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, PORT="x", LEASE_S="y")
    assert len(_faults().splitlines()) == 2


def test_max_steps_may_not_pass_the_operators_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, MAX_STEPS="20", CEILING_STEPS="10")
    assert "SUREFOOT_CEILING_STEPS" in _faults()


def test_egress_is_a_list_of_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, EGRESS_ALLOW="127.0.0.0/8, fd00::/8")
    assert [str(n) for n in load().settings.egress_allow] == ["127.0.0.0/8", "fd00::/8"]


def test_an_unknown_variable_is_a_warning_with_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, LEASE="15", URL="http://x", API_KEY="k")
    (warning,) = load().warnings
    assert "SUREFOOT_LEASE:" in warning
    assert "SUREFOOT_LEASE_S" in warning


@pytest.mark.case("C146")
def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(
        monkeypatch,
        DATABASE_URL="postgresql://bob:canary-1@db:5432/x?password=canary-2",
        REDIS_URL="redis://:canary-3@cache/0",
        LLM_BASE_URL="https://llm/v1",
        LLM_MODEL="m",
        LLM_API_KEY="canary-5",
        ADMIN_KEY="canary-6-0123456789",
        ENCRYPTION_KEYS=f"a:{KEY}",
    )
    loaded = load()
    shown = json.dumps(masked(loaded))
    assert "canary" not in shown
    assert KEY not in shown
    assert "@db:5432/x" in shown
    assert "canary" not in repr(loaded)
    assert set(loaded.settings.secrets()) >= {"canary-1", "canary-3", "canary-5", KEY}


def test_urls_of_other_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a process began to serve and waited for such a database without end."""
    _set(monkeypatch, DATABASE_URL="mysql://canary@db/x", REDIS_URL="http://canary")
    faults = _faults()
    assert "SUREFOOT_DATABASE_URL: must begin with postgresql:// or postgres://" in faults
    assert "SUREFOOT_REDIS_URL: must begin with redis://" in faults
    assert "canary" not in faults
