# SPDX-License-Identifier: BSD-2-Clause
# make test: lint, types and every test.  make demo: the digits on simulated hardware.
# Both set up .venv by themselves; they need Python >= 3.11, g++ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help test demo clean

help:
	@echo "make test   lint, types and every test (about half an hour on two cores)"
	@echo "make demo   compress a digit classifier and run it on simulated hardware"
	@echo "make clean  remove everything that make has made, $(VENV) included"

test: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/python -m pytest -m "" -n 2 --dist loadgroup --no-loadscope-reorder --durations 15

demo: $(VENV)/demo.stamp
	@$(BIN)/python examples/demo.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	"Gossamer needs Python 3.11 or newer, $(PYTHON) is %d.%d: make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	@echo "Installing gossamer[$*] into $(VENV): one to two minutes"
	@$(PIP) install -e .[$*]
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
