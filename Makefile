# Every command of the project. `make` alone lists them; each sets up what it needs by itself.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.lock pyproject.toml lab/pyproject.toml
	@tools/setup-venv "$(PYTHON)"

.PHONY: setup
setup: $(READY) ## create .venv with everything that the other commands need

.PHONY: fmt
fmt: $(READY) ## format the code and apply the linter's fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: demo
demo: $(READY) ## run a cluster, a cloud and the manager on this machine (ONCE=1: check it and end)
	@$(BIN)/pileus demo $(if $(filter-out 0,$(ONCE)),--once)

.PHONY: check
check: $(READY) ## check format, lint, shape, language, layers, types; about a minute
	@tools/run-checks

.PHONY: test
test: check ## run all tests, also on a real control plane (built once, about ten minutes)
	@tools/run-tests

.PHONY: simulation
simulation: $(READY) ## run ten thousand schedules of faults in virtual time (SEEDS=…, JOBS=…)
	@$(BIN)/pileus simulate --seeds $(or $(SEEDS),10000) $(if $(JOBS),--jobs $(JOBS))

.PHONY: soak
soak: simulation ## the simulation, and minutes of churn and restarts on a real control plane (SOAK="--minutes=10 --seed=7" and the like)
	@PILEUS_CONTROL_PLANE=$$($(BIN)/python tools/build_control_plane.py) $(BIN)/python -m tests.soak $(SOAK)

.PHONY: mutants
mutants: $(READY) ## remove one guard at a time and check that a test notices (MUTANTS="--only lease")
	@$(BIN)/python -m tests.mutants $(MUTANTS)

.PHONY: lock
lock: $(READY) ## update requirements/dev.lock from pyproject.toml
	@tools/renew-lock

.PHONY: docs
docs: $(READY) ## generate the reference pages
	@$(BIN)/python -m tools.flags_reference
	@$(BIN)/python -m tools.metrics_reference
	@$(BIN)/python -m tools.local_cloud_reference
	@$(BIN)/python -m tools.annotations_reference
