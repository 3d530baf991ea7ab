"""Surefoot: durable LLM agent sessions over HTTP."""

from typing import Final

__version__: Final = "0.1.0"
