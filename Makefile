# make serve   run a broker (ARGS="--data DIR" passes options on)
# make test    lint, types, tests
# The .venv is made once; it follows pyproject.toml and the requirements files.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
BASE := .venv/.base
DEV := .venv/.dev

# uv is several times faster than pip; where it can't be had, pip does the same work.
install = if [ -x $(BIN)/uv ]; then $(BIN)/uv pip install --quiet --python $(BIN)/python $(1); \
	else $(BIN)/python -m pip install --quiet $(1); fi

.PHONY: serve test lint format types setup dev requirements clean

serve: $(BASE)
	$(BIN)/dovetail serve $(ARGS)

test: lint types
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV)
	$(BIN)/mypy

setup: $(BASE)

dev: $(DEV)

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv || echo "uv is not available here: using pip"

$(BASE): pyproject.toml requirements.txt | $(BIN)/python
	$(call install,-r requirements.txt -e .)
	touch $@

$(DEV): pyproject.toml requirements.txt requirements-dev.txt | $(BIN)/python
	$(call install,-r requirements-dev.txt -e .)
	touch $(BASE) $@

# Pins without addresses, so that they hold with whatever package index is configured.
requirements: | $(BIN)/python
	$(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--python-version 3.11 pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--python-version 3.11 --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
