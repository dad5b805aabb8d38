# The whole set-up on a fresh machine: Python 3.11+, git and make. `make run` shows the main job,
# `make test` checks everything; both install what they need into .venv on their first run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
QUICK ?=
# More workers than the two processors that this is measured on: most tests wait for something.
WORKERS ?= 6
FUZZ_SECONDS ?= 300
FUZZ_TARGETS ?=
SOAK_MINUTES ?= 60
SOAK_AGENTS ?= 200
SOAK_JSON ?=

CHECKS := types types-win32 types-darwin format lint layers

.PHONY: setup run test check docs bench dist fuzz soak clean $(CHECKS)

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Jackline needs Python 3.11 or newer; set one with: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	@touch $@

run: $(READY)
	@$(BIN)/jackline up

# Two at a time: each of them uses one processor, and the three platforms of mypy take longest.
check: $(READY)
	@$(MAKE) --no-print-directory --jobs 2 $(CHECKS)

types: $(READY)
	$(BIN)/mypy

types-win32 types-darwin: types-%: $(READY)
	$(BIN)/mypy --platform $* --no-warn-unreachable --cache-dir .mypy_cache/$* src

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

layers: $(READY)
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m tests.run_all --numprocesses $(WORKERS)

docs: $(READY)
	@$(BIN)/python docs/make_site.py

bench: $(READY)
	@for script in $(filter-out bench/soak.py,$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script $(if $(QUICK),--quick) || failed=1; done; exit $${failed:-0}

dist: $(READY)
	@$(BIN)/python -m release.make_dist

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz.coverage_guided --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

soak: $(READY)
	@$(BIN)/python bench/soak.py --minutes $(SOAK_MINUTES) --agents $(SOAK_AGENTS) $(if $(SOAK_JSON),--json $(SOAK_JSON))

clean:
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
