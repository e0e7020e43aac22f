# Everything builds .venv on first use, from nothing but Python >= 3.11 and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CHROMIUM ?= /usr/bin/chromium

.PHONY: help demo docs test test-browser lint fmt fuzz fuzz-record audit clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "treevae needs Python 3.11 or newer, $(PYTHON) is " + sys.version)'
	@echo "Installing into $(VENV): some minutes and some gigabytes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/ready  ## grow a tree on real pictures, draw it, score it, and write its report.html (a few minutes)
	$(BIN)/treevae demo

docs: $(VENV)/ready  ## the site, in build/site/html; a broken link is an error
	$(BIN)/python docs/make_site.py

test: lint  ## lint, types and all tests that need no GPU
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m 'not gpu and not browser'

test-browser: $(VENV)/ready  ## the pages in Chromium, which is installed if it is missing and can be
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	@if [ ! -x $(CHROMIUM) ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq chromium; \
	  else echo "make test-browser needs $(CHROMIUM): install Debian's package chromium, or say where it is: make test-browser CHROMIUM=PATH"; exit 1; fi; \
	fi
	CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest -m browser tests/browser

lint: $(VENV)/ready  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: $(VENV)/ready  ## 100,000 bad files for the loaders, see docs/evidence/reliability.md (about 10 minutes on two cores)
	mkdir -p fuzz-findings
	$(BIN)/python tests/fuzz --inputs 100000 --seed 0 --out fuzz-findings/fuzz.json

fuzz-record: $(VENV)/ready  ## the same, and the record of it in docs is written anew
	$(BIN)/python tests/fuzz --inputs 100000 --seed 0 --out docs/runs/fuzz.json

audit:  ## known vulnerabilities of the pinned versions, in an environment of its own (asks the network)
	$(PYTHON) -m venv .audit
	.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	.audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

fmt: $(VENV)/ready  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment, the site and what the demo wrote
	rm -rf $(VENV) .audit demo build
