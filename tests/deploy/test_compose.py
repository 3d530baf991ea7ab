"""The compose file and the image: structure always; the compose command's own check where it is."""

import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.house.source import ROOT

FILE = ROOT / "docker-compose.yml"
REQUIRED = ("SUREFOOT_ADMIN_KEY", "SUREFOOT_ENCRYPTION_KEYS")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())["services"]
    return loaded


def test_the_services_are_all_there(services: dict[str, Any]) -> None:
    assert set(services) == {"migrate", "api", "worker", "postgres", "valkey", "jaeger"}
    assert services["postgres"]["image"] == "postgres:18"
    assert re.fullmatch(r"jaegertracing/jaeger:2\.\d+\.\d+", services["jaeger"]["image"])


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("migrate", ["surefoot", "migrate"]),
        ("api", ["surefoot", "serve", "--role", "api"]),
        ("worker", ["surefoot", "serve", "--role", "worker"]),
    ],
    ids=["migrate", "api", "worker"],
)
def test_our_services_run_their_part(
    services: dict[str, Any], name: str, command: list[str]
) -> None:
    service = services[name]
    assert service["command"] == command
    assert service["read_only"] is True
    environment = service["environment"]
    for variable in REQUIRED:
        assert environment[variable].startswith(f"${{{variable}:?"), "must refuse to start"
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://jaeger:4318"
    assert environment["SUREFOOT_JAEGER_URL"]
    assert environment["SUREFOOT_DATABASE_URL"].startswith("postgresql://")
    assert environment["SUREFOOT_REDIS_URL"] == "redis://valkey:6379/0"
    assert "SUREFOOT_AUTH" not in environment


def test_servers_are_waited_for(services: dict[str, Any]) -> None:
    for name in ("api", "worker"):
        waits = services[name]["depends_on"]
        assert waits["migrate"]["condition"] == "service_completed_successfully"
        assert {waits[n]["condition"] for n in ("postgres", "valkey")} == {"service_healthy"}
    assert services["postgres"]["healthcheck"]["test"]
    assert services["valkey"]["healthcheck"]["test"]


def test_nothing_is_published_beyond_this_machine(services: dict[str, Any]) -> None:
    published = [port for s in services.values() for port in s.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_compose_command_accepts_it_and_refuses_it_without_keys() -> None:
    command = _compose()
    if command is None:
        # Not a skip: what can be checked without the command is that the refusals are written.
        text = FILE.read_text()
        assert all(f"${{{variable}:?" in text for variable in REQUIRED)
        return
    bare = {k: v for k, v in os.environ.items() if k not in REQUIRED}
    refused = _config(command, bare)
    assert refused.returncode != 0
    assert "SUREFOOT_" in refused.stderr
    accepted = _config(command, bare | dict.fromkeys(REQUIRED, "k1:AAAA"))
    assert accepted.returncode == 0, accepted.stderr


def test_the_image_runs_as_a_user_from_the_lock() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=python:3\.\d+-slim$", text, re.MULTILINE)
    assert re.search(r"^USER (?!root|0)\S+$", text, re.MULTILINE)
    assert "--require-hashes -r requirements-runtime.lock" in text
    assert 'CMD ["surefoot", "serve", "--role", "all"]' in text


def test_the_build_context_holds_what_the_image_copies() -> None:
    kept = {
        line.removeprefix("!").rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    assert {name for group in copied for name in group.split()} == kept


def _compose() -> list[str] | None:
    docker = shutil.which("docker")
    if docker is None:
        return None
    probe = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    return [docker, "compose"] if probe.returncode == 0 else None


def _config(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "-f", str(FILE), "config", "--quiet"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
