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
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(VENV)/.stamp

lint: deps ## ruff, mypy --strict, buf, staleness of generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@for file in $$(git ls-files "tests/*conftest.py"); do $(BIN)/mypy "$$file" || exit 1; done
	$(BIN)/buf lint
	@$(MAKE) --no-print-directory proto-check

test: deps ## unit tests and tests on real nodes
	$(BIN)/pytest -n $(JOBS) --dist loadfile

schema-check: deps ## every example against libvirt's schemas (SCHEMAS=DIR of another release, MANIFESTS=DIR of your own)
	LAUNCHER_LIBVIRT_SCHEMAS="$(SCHEMAS)" LAUNCHER_MANIFESTS="$(MANIFESTS)" \
	  $(BIN)/pytest -q tests/unit/domain/test_domain_schema.py

test-slow: deps ## the tests that take minutes each: for every night, not for every commit
	$(BIN)/pytest -m slow -v

test-matrix: deps ## migrations between this libvirt and QEMU and another Debian release's, both ways, as a table
	@command -v debootstrap >/dev/null || apt-get install -q -y --no-install-recommends debootstrap
	$(BIN)/pytest -m matrix -q tests/node/test_migration_generations.py

bench: deps ## translations per second on one core, and what else costs time or memory
	@$(BIN)/python tests/bench/bench.py

bench-start: deps ## from create to running for 1, 10 and 50 guests, beside plain virsh create (minutes)
	@$(BIN)/python tests/bench/start.py $(COUNT)

migration-bench: deps ## how migration policies fare with simulated guests and links (SEEDS=N of each family)
	@$(BIN)/python tests/unit/migration/convergence_table.py --seeds $(or $(SEEDS),4)

migration-report: deps ## twenty real migrations, idle to busy guests with different consents, and how they went (20 min)
	@$(BIN)/python tests/bench/migration_report.py $(REPORT)

fuzz: deps ## 100,000 broken manifests (COUNT=N, SEED=N): nothing but our errors, nothing that breaks out
	@$(BIN)/python tests/unit/fuzz/fuzz_many.py --count $(or $(COUNT),100000) $(if $(SEED),--seed $(SEED))

demo: deps ## two nodes on this machine, a guest, a live migration (KEEP=1 leaves the nodes up)
	@$(BIN)/launcherctl lab demo $(if $(filter-out 0,$(KEEP)),--keep)

# protoc finds its plugins on PATH; package launcher.v1 under proto/ lands in launcher/v1 with imports that resolve.
PROTOS := $(sort $(wildcard proto/launcher/v1/*.proto))
PROTOC = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto \
	--python_out=$(1) --mypy_out=quiet:$(1) --grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)

proto: deps ## regenerate launcher/v1 from proto/
	@rm -f launcher/v1/*_pb2.py launcher/v1/*_pb2.pyi launcher/v1/*_pb2_grpc.py launcher/v1/*_pb2_grpc.pyi
	$(call PROTOC,.)

proto-check: ## fail when launcher/v1 is not what proto/ gives
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(call PROTOC,$$scratch) && \
	  diff -r -x __init__.py -x __pycache__ "$$scratch/launcher/v1" launcher/v1 || \
	  { echo "error: launcher/v1 is stale" >&2; echo "hint: run make proto and commit the result" >&2; exit 1; }

lock: ## refresh both lock files (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --no-annotate --no-header \
	  pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  -c requirements.lock pyproject.toml -o requirements-agent.lock

docs: deps ## regenerate docs/fields.md from the code
	$(BIN)/python -c 'from launcher.explain.fields_doc import fields_markdown; print(fields_markdown(), end="")' > docs/fields.md

.PHONY: help deps venv lint test schema-check test-slow test-matrix bench bench-start migration-bench migration-report fuzz docs demo \
	lock proto proto-check
