"""Surefoot: durable LLM agent sessions over HTTP."""
