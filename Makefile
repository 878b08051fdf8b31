# Two commands are enough: `make serve` runs Everturn, `make test` proves it. Each sets everything up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: help serve test check format docs bench mutate crash soak clean

help:
	@echo "make serve   run Everturn on http://127.0.0.1:8420/ (ARGS='--port 9000' for more)"
	@echo "make test    set up and run all tests"
	@echo "make check   lint, types, the page's checks"
	@echo "make docs    write the documentation site to build/docs"
	@echo "make bench   print the figures (minutes)"
	@echo "make mutate  break the lines that keep the contracts; their tests must notice (minutes)"
	@echo "make crash   kill and power-cut campaign (long)"
	@echo "make soak    people use a server that is killed again and again (long)"

serve: $(VENV)/.product
	$(BIN)/everturn serve $(ARGS)

test: $(VENV)/.tests
	scripts/test $(ARGS)

check: $(VENV)/.tests
	scripts/check

format: $(VENV)/.tests
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/docs/index.html."

bench: $(VENV)/.tests
	scripts/bench $(ARGS)

mutate: $(VENV)/.tests
	scripts/mutate $(ARGS)

crash: $(VENV)/.tests
	scripts/crash $(ARGS)

soak: $(VENV)/.tests
	scripts/soak $(ARGS)

clean:
	rm -rf $(VENV) frontend/node_modules src/everturn/web/page

$(VENV)/.python:
	scripts/python-check $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# The product: the page is built by the package's build hook, Node comes from a wheel.
$(VENV)/.product: $(VENV)/.python pyproject.toml hatch_build.py requirements/product.lock $(shell find frontend -type f -not -path '*/node_modules/*' 2>/dev/null)
	@echo "Installing Everturn and building its page: a minute or two, once."
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/product.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.docs: $(VENV)/.product requirements/docs.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/docs.lock
	touch $@

$(VENV)/.tests: $(VENV)/.product requirements/test.lock
	@echo "Installing what the tests need: a minute or two, once."
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/test.lock
	scripts/system-packages
	touch $@
