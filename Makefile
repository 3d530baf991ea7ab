# Everything a person or CI does with this repository. `make` alone lists the targets.
# Needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv from requirements.lock.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST_ARGS ?=

# Without its .pyc files each of the processes that the tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast simulate chaos histories soak mutants check format openapi migrate bench requirements lock upgrade audit docs diagram clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the locked dependencies and the project (does nothing when up to date)

# The stamp holds a hash of what was installed, so that a checkout with new file times does not install again.
$(STAMP): pyproject.toml requirements.lock
	@want=$$(cat pyproject.toml requirements.lock | $(PYTHON) -c 'import hashlib,sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'); \
	if [ "$$(cat $(STAMP) 2>/dev/null)" = "$$want" ]; then touch $(STAMP); exit 0; fi; \
	set -e; \
	echo 'installing into $(VENV), about a minute'; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Surefoot needs Python 3.11 or newer")'; \
	[ -x $(BIN)/python ] && $(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV); \
	$(BIN)/python -m pip install --quiet --no-input --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install --quiet --no-input --no-deps --no-build-isolation -e .; \
	echo "$$want" > $(STAMP)

run: setup ## run the whole service here: embedded Postgres and Valkey, API and worker (data in .surefoot/)
	$(BIN)/surefoot dev

# WORKERS says in how many processes at once; what measures time runs after them, alone (tests/suite.py).
test: setup ## run every test, with coverage (100 % on app/core, 90 % overall) and the record for `make requirements`
	$(BIN)/python -m coverage erase
	$(BIN)/python -m tests.suite --cov --cov-report= $(PYTEST_ARGS)
	$(BIN)/coverage report --fail-under=90
	@if [ -d app/core ]; then $(BIN)/coverage report --include='app/core/*' --fail-under=100; fi

test-fast: setup ## run the tests that are not marked slow, without coverage
	$(BIN)/python -m tests.suite -m 'not slow' $(PYTEST_ARGS)

# SEEDS=1000 FROM=0 bound it; SEED=1234 plays one run and prints its trace, PLANT=name one with a planted fault.
simulate: setup ## play 100,000 runs of the deterministic simulation, or one: make simulate SEED=1234
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100000) --from $(or $(FROM),0)) $(if $(PLANT),--plant $(PLANT))

chaos: setup ## kill, stop and terminate real processes at every point of a run (CHAOS_ARGS='--only append'), some 20 minutes
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

histories: setup ## random histories over the API of real processes: EXAMPLES=200
	EXAMPLES=$(or $(EXAMPLES),200) $(BIN)/pytest -q tests/histories

soak: setup ## mixed sessions under random kills: MINUTES=20
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20) $(SOAK_ARGS)

# MUTANTS='app/core/plan.py …' bounds it. What a stopped run has found is kept, and survivors are tried again; SHARE=1 does
# so with all random lives instead of a fiftieth.
mutants: setup ## which changes of app/core, the journal writer and the claims does no test notice?
	$(BIN)/python -m tests.mutants $(if $(SHARE),--share $(SHARE)) $(MUTANTS)

check: setup ## lint, formatting, types, layers, dependencies, spelling, size budgets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard app tests migrations)
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/codespell
	$(BIN)/pytest -q -rs tests/house
	$(BIN)/python -m app.api.export --check openapi/openapi.json

format: setup ## write the formatting and the fixes that ruff is sure of
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

openapi: setup ## write openapi/openapi.json from the code
	$(BIN)/python -m app.api.export openapi/openapi.json

migrate: setup ## bring the database at SUREFOOT_DATABASE_URL to the newest schema
	$(BIN)/surefoot migrate

bench: setup ## measure throughput and latency on this machine
	$(BIN)/python -m tests.bench

requirements: setup ## which tests prove which requirement and case, from the last test runs
	@$(BIN)/python -m tests.requirements

# The resolver runs in an environment of its own; the locks name no index, hold for every platform, and carry hashes.
COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(LOCK_ARGS)
lock: ## write requirements.lock and requirements-runtime.lock from pyproject.toml, keeping what still fits
	@[ -x $(VENV)-lock/bin/uv ] || { $(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv; }
	$(COMPILE) --group dev -o requirements.lock pyproject.toml
	$(COMPILE) -c requirements.lock -o requirements-runtime.lock pyproject.toml

upgrade: ## the same, moving every dependency to its newest release
	$(MAKE) lock LOCK_ARGS=--upgrade

audit: setup ## look for known vulnerabilities in the locked packages (needs the advisory service, so it is not in check)
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.lock

docs: setup ## write the generated pages: docs/events.md and the diagram in docs/architecture.md
	$(BIN)/python -m tests.scripts.docs

diagram: setup ## draw the packages of app/ and who imports whom, as text
	@$(BIN)/python -m tests.scripts.diagram

clean: ## remove what the tools left (not .venv, not .surefoot)
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov dist build .requirements .bench .mutants
	find app tests -name __pycache__ -type d -prune -exec rm -rf {} +
