# One entry for people and CI. `make demo` and `make test` need nothing but git, make, Python and root.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
JOBS ?= 2

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

deps: ## install system packages and the virtual environment (quick when nothing changed)
	@deploy/install-deps
	@test $(VENV)/.stamp -nt requirements.lock -a $(VENV)/.stamp -nt pyproject.toml || $(MAKE) --no-print-directory venv

venv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . || \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(VENV)/.stamp

lint: deps ## ruff, mypy --strict, buf, staleness of generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: deps ## unit tests and tests on real nodes
	$(BIN)/pytest

.PHONY: help deps venv lint test
