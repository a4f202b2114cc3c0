# The front door. Every target makes what it needs: a virtual environment from plain `python3 -m venv` and
# the pinned, hashed packages of requirements/. `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
UPGRADE ?=
BENCH_ARGS ?= --full
BENCH_PEERS_ARGS ?=
CAMPAIGN_ARGS ?= --json bench/results/campaign.json --page docs/internals/campaign.md
UV_VERSION := 0.13.9
LOCK_VENV := .cache/lock

# Python and pip must not be steered by whatever the calling shell has set up for other work.
unexport PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An environment is known by what went into it: the interpreter, this folder and the bytes of the lock files.
# Any other content is another name, so an old environment is never taken for a new one.
INTERPRETER := $(shell $(PYTHON) -VV 2>/dev/null)
id = $(shell { echo "$(INTERPRETER) $(CURDIR)"; cat $(1); } | cksum | tr -d ' \t')
LOCKS := requirements/core.txt requirements/build.txt requirements/dev.txt
CORE := $(VENV)/.core-$(call id,$(LOCKS))
DEV := $(VENV)/.dev-$(call id,$(LOCKS))
ADAPTERS := $(sort $(notdir $(basename $(wildcard requirements/adapters/*.in))))
adapter_env = $(VENV)/adapters/$(1)/.ready-$(call id,requirements/adapters/$(1).txt pyproject.toml)
PACKAGE := $(VENV)/.package-$(call id,pyproject.toml)
RUN := $(VENV)/bin/
PIP := $(RUN)python -m pip install --quiet --no-input

# The parts of `make test`, the long ones first.
JOBS ?= 2
GATE_TESTS := gate-tests-1 gate-tests-2
GATE_FAULTS := gate-faults-1 gate-faults-2
GATE := $(GATE_TESTS) $(GATE_FAULTS) $(ADAPTERS:%=gate-adapter-%) lint

.PHONY: help demo postgres test test-fast test-adapters adapters lint bench bench-server bench-peers mutants campaign docs lock clean $(GATE)
# Environments are made one after the other: two of pip in one would spoil it. What a part of the gate needs is there.
ifdef GATE_RUNS
$(GATE): export TMPDIR = $(GATE_RUNS)/$@
else
.NOTPARALLEL:
endif
.DEFAULT_GOAL := help

help:  ## list the targets
	@echo "agent-run-ledger: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(PACKAGE)  ## a real 20-step run, killed in step 19 and finished with nothing paid twice (under a minute)
	@$(RUN)arl demo

# Two at a time, for two cores: no test measures time, each has a folder and ports of its own, and no two share a fixture.
# Each part has a place for temporary files of its own, where nothing else of the machine tidies up, and which goes with it.
test: $(DEV) $(PACKAGE) postgres  ## everything that gates: lint, and every test but the campaigns (under 30 minutes)
	@echo "make test: $(words $(GATE)) parts, $(JOBS) at a time; each is shown when it is over"
	@place=$$(mktemp -d "$${TMPDIR:-/tmp}/arl-test.XXXXXX") && trap 'rm -rf "$$place"' EXIT && chmod 0755 "$$place" && \
	mkdir -m 1777 $(GATE:%="$$place/%") && \
	GATE_RUNS="$$place" $(MAKE) --no-print-directory --keep-going --jobs=$(JOBS) --output-sync=target $(GATE)

$(GATE_TESTS): gate-tests-%:
	@echo "make test: tests $*/2" && $(RUN)python -m pytest -m "not (fault or campaign)" --part $*/2

$(GATE_FAULTS): gate-faults-%:
	@echo "make test: faults $*/2" && $(RUN)python -m pytest -m "fault and not campaign" --part $*/2

# Debian's server is installed where it is missing and who asks is root. Without one the tests that need it are skipped.
postgres:  ## a PostgreSQL server for the tests, which start a cluster of their own
	@$(PYTHON) -m tests.services.postgres

test-adapters: $(ADAPTERS:%=gate-adapter-%)  ## the adapters, each with its framework, in the framework's own environment

adapters: $(foreach name,$(ADAPTERS),$(call adapter_env,$(name)))  ## an environment for each framework, pinned and cached

test-fast: $(DEV) $(PACKAGE)  ## the inner loop: unit, contract and house tests (under a minute)
	@$(RUN)python -m pytest -m "not (slow or fault or campaign or server)" $(wildcard tests/unit tests/contract tests/house)

lint: $(DEV) $(PACKAGE)  ## ruff, mypy strict, pyright strict, import layers
	@echo "lint: ruff" && $(RUN)ruff check . && $(RUN)ruff format --check .
	@echo "lint: mypy" && $(RUN)mypy
	@echo "lint: pyright" && $(RUN)pyright --pythonpath $(RUN)python
	@echo "lint: layers" && $(RUN)lint-imports

bench: $(PACKAGE)  ## the numbers, as ratios to a bare SQLite floor in the same process (alone on an idle machine)
	@$(RUN)arl bench $(BENCH_ARGS)

bench-server: $(DEV) $(PACKAGE) postgres  ## a store at PostgreSQL beside a bare loop, on a server of its own
	@$(RUN)python -m bench.server $(BENCH_SERVER_ARGS)

bench-peers: $(PACKAGE)  ## DBOS, LangGraph and unhinged beside it in one run, each in an environment of its own (6 minutes)
	@$(RUN)python -m bench.peers $(BENCH_PEERS_ARGS)

mutants: $(DEV) $(PACKAGE)  ## break each guard of tests/house/mutants.toml; its named test must fail
	@$(RUN)python tests/house/run_mutants.py

campaign: $(DEV) $(PACKAGE)  ## 2,000 random agents, 240 stories of effects and 600 kills of pipelines (20 minutes idle, alone); with ARL_CAMPAIGN=N also N times the fault tests (hours)
	@$(RUN)python -m tests.campaign $(CAMPAIGN_ARGS)
	@$(RUN)python -m pytest -q -m campaign tests/model/test_effects_schedules.py -k "never_give_up and not 1"
	@if [ -n "$$ARL_CAMPAIGN" ]; then $(RUN)python -m pytest -m "fault or campaign"; fi

docs: $(DEV) $(PACKAGE)  ## the documentation as a site in build/site
	@$(RUN)mkdocs build --quiet --strict --site-dir build/site && echo "docs: build/site/index.html"

lock: $(LOCK_VENV)/uv-$(UV_VERSION)  ## write requirements/*.txt anew (UPGRADE=1 takes newer versions)
	@UV=$(LOCK_VENV)/bin/uv requirements/lock.sh $(if $(UPGRADE),--upgrade)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) .cache arl-demo arl-demo-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(CORE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This needs Python 3.11 or newer as '$(PYTHON)'. Another one: make PYTHON=python3.13 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module. Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V): the pinned packages the library needs, about half a minute ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --require-hashes -r requirements/core.txt -r requirements/build.txt
	@touch $@

$(DEV): $(CORE)
	@echo "Adding the pinned tools for tests and lint to $(VENV), about a minute ..."
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

$(PACKAGE): $(CORE)
	@rm -f $(VENV)/.package-*
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

define make_adapter_env
$(call adapter_env,$(1)): | $(PACKAGE)
	@echo "Making $(VENV)/adapters/$(1) with what $(1) needs, about a minute ..."
	@$(PYTHON) -m venv --clear $(VENV)/adapters/$(1)
	@$(VENV)/adapters/$(1)/bin/python -m pip install --quiet --no-input --require-hashes -r requirements/adapters/$(1).txt
	@$(VENV)/adapters/$(1)/bin/python -m pip install --quiet --no-input --no-build-isolation --no-deps --editable .
	@touch $$@

gate-adapter-$(1): $(call adapter_env,$(1))
	@echo "adapters: $(1)" && \
	  $(VENV)/adapters/$(1)/bin/python -m mypy --config-file= --strict src/agent_run_ledger/adapters/$(1) && \
	  $(VENV)/adapters/$(1)/bin/python -m pytest tests/adapters/$(1)
endef
$(foreach name,$(ADAPTERS),$(eval $(call make_adapter_env,$(name))))

$(LOCK_VENV)/uv-$(UV_VERSION):
	@echo "Making $(LOCK_VENV) with uv $(UV_VERSION), which resolves the lock files ..."
	@$(PYTHON) -m venv --clear $(LOCK_VENV)
	@$(LOCK_VENV)/bin/python -m pip install --quiet --no-input uv==$(UV_VERSION)
	@touch $@
