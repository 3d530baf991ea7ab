"""Fixtures for every test: a Postgres and a Valkey of the run, started when first asked for."""

from hypothesis import settings

pytest_plugins = ["pytester", "tests.halves", "tests.requirements_plugin", "tests.servers"]

# Machines that run these tests are shared: how long one example took says nothing of the code.
settings.register_profile("surefoot", deadline=None)
settings.load_profile("surefoot")
