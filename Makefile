# Everything builds .venv on first use, from nothing but Python >= 3.11 and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint fmt clean

help:  ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "treevae needs Python 3.11 or newer, $(PYTHON) is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/ready  ## grow a tree on real pictures, draw it and score it (a few minutes)
	$(BIN)/treevae demo

test: lint  ## lint, types and all tests that need no GPU
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m 'not gpu'

lint: $(VENV)/ready  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(VENV)/ready  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and what the demo wrote
	rm -rf $(VENV) demo
