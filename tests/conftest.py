"""Fixtures for every test: a Postgres and a Valkey of the run, started when first asked for."""

pytest_plugins = ["pytester", "tests.requirements_plugin", "tests.servers"]
