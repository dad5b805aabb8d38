# The whole set-up on a fresh machine: Python 3.11+, git and make. `make run` shows the main job,
# `make test` checks everything; both install what they need into .venv on their first run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
QUICK ?=
# More workers than the two processors that this is measured on: most tests wait for something.
WORKERS ?= 4
FUZZ_SECONDS ?= 300
FUZZ_TARGETS ?=
SOAK_MINUTES ?= 60
SOAK_AGENTS ?= 200
SOAK_JSON ?=

.PHONY: setup run test check docs bench dist fuzz soak clean

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

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 src
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin src
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

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
