# Every target needs nothing but Python and the package registry; the first use makes .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard scd_core search reproduce tests benchmarks)

.PHONY: search test lint ui clean

search: $(VENV)/installed  ## the coarse grid, on a machine without GPU the quick preset
	$(BIN)/python -m search.coarse_grid $(ARGS)

test: lint  ## ruff, mypy and the fast tests
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/installed
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

ui: $(VENV)/installed  ## MLflow on this machine only
	MLFLOW_DISABLE_TELEMETRY=true $(BIN)/mlflow server --host 127.0.0.1 --port 5000 \
	  --backend-store-uri "$$($(BIN)/python -c 'from scd_core.places import tracking_uri; print(tracking_uri())')"

clean:  ## what can be made again; runs, searches and the MLflow store stay
	rm -rf $(VENV) cache .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[offline,dev]'
	touch $@
