# SPDX-License-Identifier: Apache-2.0
# Needs Python >= 3.11, make and a C++ compiler. Everything else, the CUDA compiler included, comes from PyPI into .venv.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2

BIN    := $(VENV)/bin
PORTER := $(BIN)/porter
STAMP  := $(VENV)/.installed

DEMO     := corpus/gemm_ws/gemm_ws.cu
DEMO_OUT := out/demo

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all lint golden bench docs site fuzz clean

help:
	@echo 'make venv      create $(VENV) with everything the other targets need'
	@echo 'make demo      port a Hopper GEMM, build both versions, compare them on the simulator'
	@echo 'make test      the tests that every change runs'
	@echo 'make test-all  those and the slow ones'
	@echo 'make lint      ruff and mypy'
	@echo 'make bench     time simulator, scan and port; fails below a target of docs/benchmarks.md'
	@echo 'make golden    write the reference diffs of the corpus ports anew'
	@echo 'make fuzz      10,000 broken inputs for the commands that read sources'
	@echo 'make docs      write the generated pages under docs/ anew'
	@echo 'make site      the pages under docs/ as a web site'

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Porter needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,cuda,external,docs]'
	@touch $@

demo: venv
	$(PORTER) doctor
	$(PORTER) port $(DEMO) -o $(DEMO_OUT)
	$(PORTER) build $(DEMO) --port $(DEMO_OUT)/$(notdir $(DEMO))
	$(PORTER) verify $(DEMO) --port $(DEMO_OUT)/$(notdir $(DEMO))

test: venv
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow'

test-all: venv
	$(BIN)/python -m pytest -n $(JOBS)

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

golden: venv
	PORTER_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden

# One core, processor time: other work on the machine disturbs the figures less.
bench: venv
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/bench --benchmark-enable --benchmark-only \
	    --benchmark-timer=time.process_time --benchmark-columns=min,mean,rounds

# Pages and links as a web site, in out/site; a warning is an error.
site: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs: venv
	$(BIN)/python docs/generate.py

fuzz: venv
	PYTHONPATH=tests $(BIN)/python tests/fuzz/fuzz.py --inputs 10000 --jobs $(JOBS)

clean:
	rm -rf out .pytest_cache .mypy_cache .ruff_cache .benchmarks
