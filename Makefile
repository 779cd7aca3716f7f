# Everything a newcomer needs: Python 3.11 or newer, make, and access to PyPI.
# Each target sets up the virtual environments that it uses; a changed lock sets them up again.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# Port of the local AWS endpoint: make up PORT=4600
PORT ?= 4566
# Port of the HTTP API without a gateway: make api API_PORT=8081
API_PORT ?= 8080
# How long a soak or a search lasts (5 or 10), and the seed of what it draws: make search MINUTES=60 SEED=1
MINUTES ?=
SEED ?=
# What faults, simulations and the soak meet, tick or second (a soak alone: both by turns): make faults PRECISION=second
PRECISION ?= tick
# How long a night is, about: make night HOURS=0.1 tries all of it
HOURS ?=
# How many traces are replayed, of the model: make traces TRACES=100000
TRACES ?=
# Change an event of each first, and see which are refused: make traces CHANGED=1
CHANGED ?=
# A DynamoDB of your own: make conformance ENDPOINT=http://127.0.0.1:8000
ENDPOINT ?=
# What is simulated (bursts, inserting, schedules, batch, keys, days, chaos or zones) or measured (make help): make simulate OF=inserting
OF ?=
# Instead of what the plan names: make simulate TASKS=100000 SHARDS=16 WORKERS=3 THREADS=64 TASK_MS=200 BYTES=700 WARM=20000
TASKS ?=
SHARDS ?=
WORKERS ?=
THREADS ?=
TASK_MS ?=
BYTES ?=
WARM ?=
# Of how many clocks that differ, drawn by SEED: make simulate OF=zones ZONES=5 SEED=1
ZONES ?=
# Of an installation's life, instead of 14: make simulate OF=days DAYS=1 SEED=2
DAYS ?=
# What make prove or make mutations takes out, instead of one rule after another: make prove RULE=9
RULE ?=
# The Python of the environments, instead of the newest that is tested: make setup PYTHON=python3.14
PYTHON ?=
# Of a release, and without asking for advisories: make release-check TAG=v1.2.3 OFFLINE=1
TAG ?=
OFFLINE ?=
# Passed on to pytest: make test ARGS="-k buckets -x"
ARGS ?=
# Without byte code each process would compile all modules anew, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
SAM_VENV := .venv-sam
BIN := $(VENV)/bin
FUNCTIONS := $(wildcard functions/*/)
# What lasts longest comes first, so that no process is left with it at the end.
TESTS := $(wildcard tests/simulate tests/model tests/costs tests/integration tests/contract tests/unit tests/frameworks)
# Tests of the deployed system share one stack and mostly wait, so they share a process, and so do the faults
# (`xdist_group`), and those of a file (tests/conftest.py); there is a process more than most machines have CPUs.
run_test = $(BIN)/python -m pytest -q -n 3 --dist loadgroup --no-loadscope-reorder -m "not long and not night" \
	tests/e2e tests/faults $(TESTS) $(ARGS)
run_tests = $(BIN)/python -m pytest -q -n auto $(TESTS)
# Each known fault, injected; each process has an emulator of its own.
run_faults = $(BIN)/python -m pytest -q -n 2 tests/faults
# They mostly wait, so there are more processes than CPUs: eight, each with a stack for the file whose tests it runs, and
# what waits longest goes first (tests/e2e/conftest.py). Of twelve on two busy CPUs some emulator answers too late.
run_e2e = $(BIN)/python -m pytest -q -n 8 --dist loadgroup --no-loadscope-reorder --timeout 1500 tests/e2e
# They compute more than they wait: five processes took longer than three. Each has a browser of its own.
run_ui = $(BIN)/python -m pytest -q tests/ui

# The first interpreter that really runs: a version manager's shim may exist and still fail.
find_python = for p in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	if $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$p; exit 0; fi; done

# A lock is complete, so nothing is left for pip to resolve (older releases of pip stumble over
# hashes together with extras if they try).
pip_install = -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps

.PHONY: help demo test test-long night night-tests check sam up down api e2e faults search soak prove simulate bench lock mutations delays words site
.PHONY: conformance traces
.PHONY: docs clean lines setup wheel newcomer test-ui screenshots release-check

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1	/' | sort | \
		while IFS='	' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

setup: $(VENV)/.ready ## Set up .venv and .venv-local (the other targets do so by themselves)

demo: $(VENV)/.ready ## Deploy locally, run a mixed batch through real ticks, show how it ended
	@$(BIN)/python -m dynatick_stack.demo

test: $(VENV)/.ready ## Run the tests of every layer, in five minutes
	$(run_test)
	@echo 'The pages of dynatick ui were left out: make test-ui drives them in a browser.'

test-ui: $(VENV)/.ui-test ## Drive the pages of `dynatick ui` with the Chromium of this machine
	$(run_ui) -n 3 --dist loadgroup -m "not long" $(ARGS)

screenshots: $(VENV)/.ui-test ## Write the pictures of the pages that docs/ shows
	@$(BIN)/python -m tests.ui.screenshots

# Every part runs even when one fails. What mostly waits comes first, so that CI can compute beside it.
run_marked = @trap 'exit 130' INT; failed=0; set -x; \
	$(run_e2e) -m "$(1)" $(ARGS) || failed=1; \
	$(run_tests) -m "$(1)" $(ARGS) || failed=1; \
	$(run_faults) -m "$(1)" $(ARGS) || failed=1; \
	exit $$failed

test-long: $(VENV)/.frameworks ## Run those that wait for minutes or have much to compute, in a quarter of an hour
	$(call run_marked,long and not night)

night: $(VENV)/.ready ## Run all that is random or long, HOURS (8); SEED repeats it; WRITE=1: into docs/proof.md too
	@$(BIN)/python -m tests.night $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

night-tests: $(VENV)/.ready ## Repeat with more, and with other values, what CI tests once, in half an hour
	$(call run_marked,night)

traces: $(VENV)/.ready ## Have TRACES (1000) of the model replayed by the rules alone; CHANGED=1: a hundred with a changed event
	@$(BIN)/python -m tests.model.$(if $(CHANGED),changed_traces,traces) $(if $(TRACES),--traces $(TRACES)) \
		$(if $(SEED),--seed $(SEED)) $(if $(and $(CHANGED),$(WRITE)),--write)

faults: $(VENV)/.ready ## Inject every known fault and show how each was survived; WRITE=1: into docs/guarantees.md too
	@$(run_faults) --precision $(PRECISION) $(ARGS) -p tests.faults.table $(if $(WRITE),--write-table)

# Of the suites that know such an endpoint, the tests that go there.
conformance: $(VENV)/.ready ## Run contract, integration, faults and a short model on another DynamoDB, at ENDPOINT
	@[ -n "$(ENDPOINT)" ] || { echo 'Say which: make conformance ENDPOINT=http://127.0.0.1:8000' >&2; exit 2; }
	$(BIN)/python -m pytest -q -n 2 --dynamodb-endpoint $(ENDPOINT) -k "endpoint or test_fault_ or test_schedules" \
		tests/contract tests/integration tests/faults tests/model $(ARGS)

mutations: $(VENV)/.ready ## Take out each rule of the protocol, and each guard, in turn, and show which test fails for it
	@$(BIN)/python -m tests.mutations $(if $(RULE),--rule $(RULE))

delays: $(VENV)/.ready ## Delay what the engine's threads do, one KIND after another, and show which tests wait for luck
	@$(BIN)/python -m tests.delays $(if $(KIND),--kind $(KIND)) $(ARGS)

prove: $(VENV)/.ready ## Check the model of the protocol, and miss each rule in turn, or RULE alone; needs spin and gcc; WRITE=1: into docs/ too
	@$(BIN)/python -m proof.prove $(if $(RULE),--rule $(RULE)) $(if $(WRITE),--write)

search: $(VENV)/.ready ## Search with fresh seeds for MINUTES (10) for what breaks a property or loses a task; SEED repeats it
	@$(BIN)/python -m tests.search $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(VENV)/.ready ## Kill and disturb processes for MINUTES (5), judge how each task ended; SEED repeats it
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(filter command,$(origin PRECISION)),--precision $(PRECISION))

e2e: $(VENV)/.ready ## Run the tests against the locally deployed template only
	$(run_e2e) $(ARGS)

check: $(VENV)/.ready $(SAM_VENV)/.ready words ## Lint, format, types, import contract, words, template
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy shared stack proof
	@# Each function folder is a program of its own, with modules of the same names.
	@for f in $(FUNCTIONS); do echo "mypy $$f"; MYPYPATH=$$f $(BIN)/mypy $$f || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/cfn-lint template.yaml
	SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 $(SAM_VENV)/bin/sam validate --lint

sam: $(VENV)/.ready $(SAM_VENV)/.ready ## Build with the SAM CLI and deploy to the local emulator, as one would to AWS
	$(BIN)/python -m pytest -q tests/sam $(ARGS)

up: $(VENV)/.ready ## Start the local AWS and deploy to it, on PORT (4566)
	@$(BIN)/python -m dynatick_stack up --port $(PORT)

down: $(VENV)/.ready ## Stop what `make up` started
	@$(BIN)/python -m dynatick_stack down

api: $(VENV)/.ready ## Serve the HTTP API over what `make up` started, with Swagger UI, on API_PORT (8080)
	@$(BIN)/python -m dynatick_stack api --port $(API_PORT)

simulate: $(VENV)/.ready ## Simulate OF: a million tasks in a minute against AWS's limits, and more; WRITE=1: into docs/ too
	@$(BIN)/python -m tests.simulate --of $(or $(OF),bursts) $(if $(TASKS),--tasks $(TASKS)) $(if $(SHARDS),--shards $(SHARDS)) \
		$(if $(WORKERS),--workers $(WORKERS)) $(if $(THREADS),--threads $(THREADS)) $(if $(TASK_MS),--task-ms $(TASK_MS)) \
		$(if $(BYTES),--bytes $(BYTES)) $(if $(WARM),--warm $(WARM)) $(if $(TICK_DELAY),--tick-delay $(TICK_DELAY)) \
		--precision $(PRECISION) $(if $(ZONES),--zones $(ZONES)) $(if $(DAYS),--days $(DAYS)) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

# Refuses what it doesn't know, and names what it does.
bench: $(VENV)/$(if $(filter ui,$(OF)),.ui-test,.ready) ## Measure OF: costs, quick, burst, memory, lateness, gap, keys, traces or ui; WRITE=1: costs into docs/ too
	@$(BIN)/python -m dynatick_stack.bench $(or $(OF),costs) $(if $(WRITE),--write) $(ARGS)

lock: $(VENV)/.ready ## Write requirements/*.txt afresh from pyproject.toml
	@sh requirements/lock.sh $(BIN)/uv

words: $(VENV)/.ready ## Print each use of a word that docs/glossary.md has a better one for
	@$(BIN)/python tests/words.py

site: $(VENV)/.site ## Build the documentation site into .site/
	$(BIN)/python -m sphinx --quiet --fail-on-warning --builder html docs .site

docs: $(VENV)/.ready ## Write the generated parts of docs/reference afresh, from code and template
	@$(BIN)/python -m dynatick_stack.reference

wheel: $(VENV)/.ready ## Build the wheel into dist/
	@$(BIN)/python -m hatchling build --target wheel

release-check: $(VENV)/.release ## Do what a release does before it is published: build, compare, install, list, audit; TAG=v1.2.3 too
	@$(BIN)/python -m tests.release_check $(if $(TAG),--tag $(TAG)) $(if $(OFFLINE),--offline)

newcomer: $(VENV)/.ready ## Work through docs/tutorial.md in an empty folder, and say how long that takes (MONTH=1: the first month)
	@$(BIN)/python -m tests.$(if $(MONTH),month,newcomer)

lines: $(VENV)/.ready ## Count the lines of product, tests and stack
	@$(BIN)/python tests/lines.py

clean: ## Remove what was built: environments, caches, local state
	@if [ -x $(BIN)/python ] && [ -d .dynatick ]; then $(BIN)/python -m dynatick_stack down || true; fi
	rm -rf $(VENV) $(SAM_VENV) .venv-local .dynatick .aws-sam dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@python=$$($(find_python)); \
	if [ -z "$$python" ]; then \
		echo "Dynatick needs Python 3.11 or newer with the venv module." >&2; exit 1; fi; \
	if [ ! -x $(BIN)/python ]; then \
		echo "Setting up $(VENV) with $$($$python --version) (once; about a minute)"; \
		$$python -m venv $(VENV); \
	else echo "Updating $(VENV)"; fi
	@$(BIN)/python $(pip_install) -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# What the local stack runs on lies elsewhere.
	@$(BIN)/python -c 'from dynatick_stack import build, venv; venv.emulator_python(print); build.libraries(print)'
	@touch $@

$(VENV)/.site: requirements/site.txt $(VENV)/.ready
	@$(BIN)/python $(pip_install) -r requirements/site.txt
	@touch $@

$(VENV)/.ui-test: requirements/ui-test.txt $(VENV)/.ready
	@$(BIN)/python $(pip_install) -r requirements/ui-test.txt
	@touch $@

$(VENV)/.frameworks: requirements/frameworks.txt $(VENV)/.ready
	@$(BIN)/python $(pip_install) -r requirements/frameworks.txt
	@touch $@

$(VENV)/.release: requirements/release.txt $(VENV)/.ready
	@$(BIN)/python $(pip_install) -r requirements/release.txt
	@touch $@

$(SAM_VENV)/.ready: requirements/sam.txt $(VENV)/.ready
	@echo "Setting up $(SAM_VENV) for the SAM CLI (once; about half a minute)"
	@[ -x $(SAM_VENV)/bin/python ] || $(BIN)/python -m venv $(SAM_VENV)
	@$(SAM_VENV)/bin/python $(pip_install) -r requirements/sam.txt
	@touch $@
