# make demo      the whole loop on the embedded model (QUICK=1: a shorter one)
# make test      the fast tests; make test-slow: those that need the network or minutes
# make lint      ruff and mypy
# make learn     the learning bar: three seeds and a control (an hour or more)
# make bench     timings of the parts, of update and rollout; scheduler and calibration simulated
#
# Everything is installed into $(VENV). PYTHON picks the interpreter (3.11 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
RUN ?= runs/demo
QUICK ?=
bin := $(VENV)/bin
# Two a core: tests wait for boxes and processes half of the time.
workers := $(shell expr 2 '*' $$(nproc))
pip := $(bin)/python -m pip --disable-pip-version-check --no-input

.PHONY: help demo test test-slow lint learn bench constraints clean

help:
	@sed -n 's/^# \?//; 1,/^$$/p' $(MAKEFILE_LIST)

demo: $(VENV)/.installed
	$(bin)/tadpole demo --run $(RUN)$(if $(QUICK),-quick --preset quick)

test: $(VENV)/.installed-dev
	$(bin)/python -m pytest -q -n $(workers) --dist loadfile

test-slow: $(VENV)/.installed-dev
	$(bin)/python -m pytest -q -m slow

lint: $(VENV)/.installed-dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

learn: $(VENV)/.installed
	$(bin)/python bench/learn.py --out runs/learn

bench: $(VENV)/.installed
	$(bin)/python bench/bench.py
	$(bin)/python bench/sandbox.py
	$(bin)/python -m bench.rl
	$(bin)/python -m bench.schedule
	$(bin)/python -m bench.calibration

# The pins of a fresh environment, as constraints for the next one.
constraints: $(VENV)/.installed-dev
	@{ echo "# Versions that are tested together. Made by: make constraints"; \
	  $(pip) freeze --all --exclude-editable | grep -v '^pip=\|^nvidia\|^triton\|^tadpole' | sed 's/+cpu$$//'; \
	} > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV)

# --- the environment ---------------------------------------------------------------------

$(VENV)/bin/pip: # the last thing that making it leaves
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) is missing: install Python 3.11 or newer, or say make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: say make PYTHON=python3.11 (or newer)" >&2; exit 2; }
	@echo "making the environment in $(VENV)" >&2
	@rm -rf $(VENV)
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -c 'import venv, pip' 2>/dev/null; then \
	  $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(VENV)/bin/python install -q pip; \
	else \
	  echo "Python's venv module is missing: apt-get install python3-venv, then again" >&2; exit 3; \
	fi

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(pip) install -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(pip) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed
