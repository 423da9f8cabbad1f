# Every command of the project. `make` alone lists them; each sets up what it needs by itself.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
check: $(READY) ## check format, lint, shape, language, layers, types; one to two minutes
	@tools/run-checks

.PHONY: test
test: check ## run all tests, also on a real control plane (built once, about ten minutes) and real OpenStack services
	@tools/run-tests

.PHONY: test-skew
test-skew: $(READY) ## run the tests on a real control plane with the oldest API server that is supported (built once, about 15 minutes)
	@PILEUS_CONTROL_PLANE=$$($(BIN)/python -m tools.build_oldest_control_plane) \
	  PILEUS_CONTROL_PLANE_VERSION=$$($(BIN)/python -m tools.build_oldest_control_plane --version) \
	  PILEUS_HELM=$$($(BIN)/python -m tools.build_helm) \
	  PILEUS_GO_OPENSTACK_CHART=$$($(BIN)/python -m tools.get_go_openstack_chart) \
	  $(BIN)/python -m pytest -n 2 --dist loadgroup tests/real

.PHONY: test-browser
test-browser: $(READY) ## run the tests of the history and benchmark pages in a headless Chromium (downloaded once; SHOTS=folder keeps screenshots)
	@PILEUS_BROWSER=$$($(BIN)/python -m tools.get_browser) PILEUS_SCREENSHOTS=$(SHOTS) $(BIN)/python -m pytest -q tests/browser

.PHONY: test-openstack
test-openstack: $(READY) ## run all tests on real OpenStack services, also those that take minutes
	@PILEUS_OPENSTACK_EXTENDED=1 tools/run-tests tests/openstack

.PHONY: test-monitoring
test-monitoring: $(READY) ## test the alerting rules with promtool (built once, some minutes)
	@PILEUS_PROMTOOL=$$($(BIN)/python -m tools.build_promtool) $(BIN)/python -m pytest -q tests/monitoring

.PHONY: test-csi
test-csi: $(READY) ## test the CSI driver, also with csi-sanity (built once, a minute or two); the node part needs root
	@PILEUS_CSI_SANITY=$$($(BIN)/python -m tools.build_csi_sanity) $(BIN)/python -m pytest -q tests/csi tests/unit/volumes

.PHONY: test-csi-sidecars
test-csi-sidecars: $(READY) ## test the CSI driver with real sidecars on a real API server (built once, some minutes)
	@PILEUS_CONTROL_PLANE=$$($(BIN)/python tools/build_control_plane.py) \
	  PILEUS_CSI_SIDECARS=$$($(BIN)/python -m tools.build_csi_sidecars) $(BIN)/python -m pytest -q tests/real/test_csi_sidecars.py

.PHONY: testbed-openstack
testbed-openstack: $(READY) ## start real OpenStack services on this machine (STOP=1: stop them)
	@$(BIN)/python -m tools.openstack_bed $(if $(filter-out 0,$(STOP)),--stop)

.PHONY: compare-openstack
compare-openstack: $(READY) ## compare the requests and times of the Go manager and Pileus on real OpenStack services
	@PILEUS_CONTROL_PLANE=$$($(BIN)/python tools/build_control_plane.py) \
	  PILEUS_GO_OPENSTACK_CCM=$$($(BIN)/python -m tools.build_go_openstack_ccm) \
	  SERVICES=$(SERVICES) $(BIN)/python -m tools.compare_openstack

.PHONY: bench
bench: $(READY) ## run Pileus beside the Go manager for about 20 minutes, and write docs/performance (ANYWAY=1: on a busy machine, too)
	@$(BIN)/python -m tools.bench --report docs/performance $(if $(filter-out 0,$(ANYWAY)),--anyway)

.PHONY: bench-quick
bench-quick: $(READY) ## the same at small sizes, about 3 minutes, without a report
	@$(BIN)/python -m tools.bench --quick $(if $(filter-out 0,$(ANYWAY)),--anyway)

.PHONY: e2e
e2e: $(READY) ## deploy the manager's image on real nodes: kubelet, containerd, control plane, local cloud; needs root
	@$(BIN)/python -m tools.node_bed -- $(BIN)/python -m pytest tests/e2e -x -s -q -n 0 -p no:randomly -p no:cacheprovider

.PHONY: simulation
simulation: $(READY) ## run ten thousand schedules of faults in virtual time (SEEDS=…, JOBS=…)
	@$(BIN)/pileus simulate --seeds $(or $(SEEDS),10000) $(if $(JOBS),--jobs $(JOBS))

.PHONY: soak
soak: simulation ## the simulation, and minutes of churn and restarts on a real control plane (SOAK="--minutes=10 --seed=7" and the like)
	@PILEUS_CONTROL_PLANE=$$($(BIN)/python tools/build_control_plane.py) $(BIN)/python -m tests.soak $(SOAK)

.PHONY: mutants
mutants: $(READY) ## remove one guard at a time and check that a test notices (MUTANTS="--only lease")
	@$(BIN)/python -m tests.mutants $(MUTANTS)

.PHONY: image
image: $(READY) ## build the container image without a daemon, into dist (EXTRAS=otlp, IMAGE=name:tag, ARCH=amd64,arm64, FRESH=1: every layer)
	@$(BIN)/python -m tools.build_image $(if $(ARCH),--arch $(ARCH)) $(if $(EXTRAS),--extras $(EXTRAS)) $(if $(IMAGE),--image $(IMAGE)) $(if $(filter-out 0,$(FRESH)),--fresh)

.PHONY: dist
dist: $(READY) ## build sdist and wheel of both distributions, into dist
	@$(BIN)/python -m tools.release dist

.PHONY: release-check
release-check: $(READY) ## check that versions and changes agree with a tag (TAG=v0.1.0)
	@$(BIN)/python -m tools.release check "$(TAG)"

.PHONY: lock
lock: $(READY) ## update the locks in requirements
	@tools/renew-lock

.PHONY: deploy-files
deploy-files: $(READY) ## generate the example manifests, the chart's templates and the Kustomize base under deploy/
	@$(BIN)/python -m tools.deploy_files

.PHONY: docs
docs: $(READY) ## generate the reference pages and the files under deploy/
	@$(BIN)/python -m tools.flags_reference
	@$(BIN)/python -m tools.metrics_reference
	@$(BIN)/python -m tools.rights_reference
	@$(BIN)/python -m tools.deploy_files
	@$(BIN)/python -m tools.local_cloud_reference
	@$(BIN)/python -m tools.annotations_reference
	@$(BIN)/python -m tools.openstack_reference
	@$(BIN)/python -m tools.contract_reference
	@$(BIN)/python -m tools.krew_plugin
	@$(BIN)/python -m tools.monitoring_files
	@$(BIN)/python -m tools.differences_tests

.PHONY: csi-stubs
csi-stubs: $(READY) ## generate the messages of CSI and of kubelet's plugin registration (needs Go)
	@$(BIN)/python -m tools.csi_stubs
