"""Counting tokens: right, offline, and without holding the loop."""

import asyncio
import base64
import importlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.providers import tokens
from app.providers.encodings import ALTERNATIVES, ENCODINGS, EncodingDataError, Encodings
from app.providers.tokens import TokenCounter

LONG = {
    "a run of one letter": "a" * 1_000_000,
    "a run of one sign": "_" * 500_000,
    "spaces": " " * 500_000,
    "base64": base64.b64encode(os.urandom(1_500_000)).decode(),
}


@pytest.fixture(scope="module")
def loaded() -> Encodings:
    found = Encodings()
    for name in ENCODINGS:
        found.load(name)
    return found


@pytest.fixture
async def counter(loaded: Encodings) -> AsyncIterator[TokenCounter]:
    counter = TokenCounter(loaded)
    yield counter
    counter.close()


@pytest.mark.req("CTX-1")
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_text_is_cut_as_the_encoding_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(reference, "load_tiktoken_bpe", lambda *_args, **_named: {})
    expected = reference.ENCODING_CONSTRUCTORS[name]()["pat_str"]
    assert "|".join(ALTERNATIVES[name]) == expected


@pytest.mark.req("CTX-1")
@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [("", 0, 0), ("hello world", 2, 2), ("你好世界", 2, 5), ("tokenization" * 2, 4, 4)],
)
async def test_counts_are_the_tokenizers(
    counter: TokenCounter, text: str, o200k: int, cl100k: int
) -> None:
    assert await counter.count(text, "o200k_base") == o200k
    assert await counter.count(text, "cl100k_base") == cl100k


@pytest.mark.case("C148")
@pytest.mark.req("CTX-1")
async def test_special_tokens_are_plain_text(counter: TokenCounter) -> None:
    for text in ("explain <|endoftext|> and <|im_start|>", "<|endofprompt|>", "x\ud83cy"):
        assert await counter.count(text, "o200k_base") > 2


@pytest.mark.alone
@pytest.mark.case("C149")
@pytest.mark.parametrize("kind", sorted(LONG))
async def test_long_runs_hold_nobody_up(kind: str, counter: TokenCounter) -> None:
    """Counted off the loop, which turns meanwhile; alone the whole takes well under a second."""
    loop = asyncio.get_running_loop()
    began, turns, longest = loop.time(), 0, 0.0
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        counting = group.create_task(counter.count(LONG[kind], "o200k_base"))
        while not counting.done():
            before = loop.time()
            await asyncio.sleep(0.001)
            longest = max(longest, loop.time() - before)
            turns += 1
    assert loop.time() - began < 3.0
    assert turns > 5
    assert longest < 0.5


async def test_a_count_in_chunks_is_that_of_the_whole(
    counter: TokenCounter, loaded: Encodings
) -> None:
    prose = "The quick brown fox, it seems, jumps over 13 lazy dogs.\n" * 5000
    for text in (prose, *LONG.values()):
        whole = len(loaded.load("o200k_base").encode_ordinary(text))
        counted = await counter.count(text, "o200k_base")
        assert 0 <= counted - whole <= 2 * len(text) / tokens.CHUNK_CHARS
        assert text is not prose or counted == whole


async def test_a_repeated_text_is_counted_once(
    counter: TokenCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the system prompt " * 100
    first = await counter.count(text, "o200k_base")
    monkeypatch.setattr(counter, "_encodings", _OnlyLoaded())
    assert await counter.count(text, "o200k_base") == first


class _OnlyLoaded:
    def loaded(self, name: str) -> str:
        return name


async def test_the_first_count_loads_off_the_loop() -> None:
    counter = TokenCounter()
    assert await counter.count("hello world", "cl100k_base") == 2
    await counter.warm(["cl100k_base"])
    with pytest.raises(EncodingDataError, match="no encoding"):
        await counter.count("x", "p50k_base")
    counter.close()


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncodingDataError, match="cannot read"):
        Encodings(tmp_path).load("o200k_base")
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(EncodingDataError, match="damaged"):
        Encodings(tmp_path).load("o200k_base")


OFFLINE = """
import asyncio, socket
def refuse(*args, **named): raise SystemExit("an outbound attempt")
socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
from app.providers.tokens import TokenCounter
print(asyncio.run(TokenCounter().count("hello world", "o200k_base")))
"""


@pytest.mark.case("C151")
@pytest.mark.req("CTX-1")
def test_nothing_is_fetched(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    root = Path(__file__).parents[2]
    env = {"PYTHONPATH": str(root), "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env=env,
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
    assert list(tmp_path.iterdir()) == []
