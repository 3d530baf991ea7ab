"""The file of models, in its three languages, and what is wrong with one that cannot be used."""

import json
from pathlib import Path

import pytest

from app.core.canonical import Json
from app.providers.config import ModelConfig, Prices, Profile
from app.providers.models_file import ModelsFileError, load_models

LINES = {
    "models.json": """{"models": [
        {"name": "a", "base_url": "http://127.0.0.1:9000/v1", "api_key_env": "A_KEY",
         "prices": {"input": 2, "output": 8.5}, "profile": {"replay_reasoning": true},
         "parameters": {"temperature": 0}},
        {"name": "b", "protocol": "openai", "base_url": "https://b.example/v1",
         "context_window": 32000, "encoding": "cl100k_base"}]}""",
    "models.yaml": """
models:
  - name: a
    base_url: http://127.0.0.1:9000/v1
    api_key_env: A_KEY
    prices: {input: 2, output: 8.5}
    profile: {replay_reasoning: true}
    parameters: {temperature: 0}
  - name: b
    protocol: openai
    base_url: https://b.example/v1
    context_window: 32000
    encoding: cl100k_base
""",
    "models.toml": """
[[models]]
name = "a"
base_url = "http://127.0.0.1:9000/v1"
api_key_env = "A_KEY"
prices = {input = 2, output = 8.5}
profile = {replay_reasoning = true}
parameters = {temperature = 0}
[[models]]
name = "b"
protocol = "openai"
base_url = "https://b.example/v1"
context_window = 32000
encoding = "cl100k_base"
""",
}
EXPECTED = (
    ModelConfig(
        "a",
        "http://127.0.0.1:9000/v1",
        "secret",
        "A_KEY",
        prices=Prices(input=2.0, output=8.5),
        profile=Profile(replay_reasoning=True),
        parameters={"temperature": 0},
    ),
    ModelConfig("b", "https://b.example/v1", context_window=32_000, encoding="cl100k_base"),
)
A = {"name": "a", "base_url": "http://x/v1"}


@pytest.mark.req("OPS-6")
@pytest.mark.parametrize("name", sorted(LINES))
def test_three_languages_say_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(LINES[name])
    assert load_models(path, {"A_KEY": "secret"}) == EXPECTED


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(EXPECTED)


def problem(tmp_path: Path, content: Json, name: str = "m.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ModelsFileError) as caught:
        load_models(path, {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("x", "models[0]: wants an object"),
        ({"base_url": "http://x"}, "models[0].name: is missing"),
        ({"name": "a"}, "models[0].base_url: is missing"),
        ({**A, "base_url": "ftp://x"}, "http:// or https://"),
        ({**A, "protocol": "anthropic"}, "not supported yet"),
        ({**A, "protocol": "smoke"}, "unknown"),
        ({**A, "fallbacks": ["b"]}, "fallbacks: is not supported yet"),
        ({**A, "colour": "red"}, "unknown field colour"),
        ({**A, "api_key_env": "NO_KEY"}, "NO_KEY is not set"),
        ({**A, "api_key": "k", "api_key_env": "A"}, "give one of them"),
        ({**A, "context_window": "big"}, "context_window: wants int"),
        ({**A, "context_window": True}, "context_window: wants int"),
        ({**A, "context_window": 10}, "at least 1024"),
        ({**A, "encoding": "p50k_base"}, "'p50k_base' is unknown"),
        ({**A, "prices": {"input": -1}}, "prices.input"),
        ({**A, "prices": {"inputs": 1}}, "unknown field inputs"),
        ({**A, "prices": []}, None),
        ({**A, "prices": [1]}, "prices: wants an object"),
        ({**A, "profile": {"text_calls": "yes"}}, "text_calls: wants bool"),
        ({**A, "parameters": {"stream": False}}, "parameters.stream: is set by the service"),
    ],
)
def test_what_is_wrong_is_said_and_where(entry: Json, said: str | None, tmp_path: Path) -> None:
    if said is not None:
        assert said in problem(tmp_path, {"models": [entry]})


@pytest.mark.parametrize("content", [{}, [], {"models": []}, {"models": {}}])
def test_a_file_without_models_is_refused(content: Json, tmp_path: Path) -> None:
    assert "at least one model" in problem(tmp_path, content)


def test_a_name_stands_once(tmp_path: Path) -> None:
    assert "used twice: a" in problem(tmp_path, {"models": [A, A]})


@pytest.mark.parametrize("name", ["m.json", "m.toml", "m.yml"])
def test_a_broken_file_does_not_show_its_keys(name: str, tmp_path: Path) -> None:
    said = problem(tmp_path, "api_key: [sk-canary-1\n: }", name)
    assert "is not valid" in said
    assert "canary" not in said


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelsFileError, match="cannot be read"):
        load_models(tmp_path / "none.json", {})


def test_a_key_in_the_file_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"models": [{**A, "api_key": "k"}]}))
    (model,) = load_models(path, {})
    assert (model.api_key, model.key_name) == ("k", f"api_key of {path}: models[0]")
