"""The command line run in this process against a scripted service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from app.cli.main import main
from tests.cli.fake_service import FakeService


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Surefoot = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeService]:
    async with FakeService() as fake:
        monkeypatch.setenv("SUREFOOT_URL", fake.url)
        monkeypatch.delenv("SUREFOOT_API_KEY", raising=False)
        yield fake


@pytest.fixture
def surefoot(capsys: pytest.CaptureFixture[str]) -> Surefoot:
    """Run a command in a thread, so that the service's loop goes on."""

    async def run(*arguments: str) -> Ran:
        code = await asyncio.to_thread(_exit_code, arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def _exit_code(arguments: tuple[str, ...]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code
