# `make demo` and `make test` work in a fresh clone: the first call builds .venv, later calls install nothing.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test lint model bench clean

demo: $(READY) model
	$(BIN)/openbook demo
	$(BIN)/openbook reproduce --scale laptop --open

test: lint model
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The pre-trained model (93 MB, once). Where it cannot be had, tests that need it are skipped by name.
model: $(READY)
	-$(BIN)/openbook models --fetch smollm2-135m

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

bench: $(READY)
	for file in benchmarks/[!_]*.py; do $(BIN)/python $$file || exit 1; done

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
