# Two commands on a fresh machine: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS := 2

.PHONY: demo test checks bench evidence soak clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m experiments.demo --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not soak' --numprocesses $(JOBS) --dist loadfile

checks: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m experiments.benchmarks

# Takes hours, and goes on where it was broken off; `--only SCENARIO`, `--stages`, `--hours` do a part.
evidence: $(STAMP)
	$(BIN)/python -m experiments.evidence

soak: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest

clean:
	rm -rf build dist .mypy_cache .ruff_cache .hypothesis
