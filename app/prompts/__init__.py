"""Prompts that come with the package: immutable versions as files, found by name and number."""

from app.prompts.catalog import PackagedPrompts, PromptText, UnknownPromptError

__all__ = ["PackagedPrompts", "PromptText", "UnknownPromptError"]
