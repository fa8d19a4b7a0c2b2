# Newcomers need two commands: `make demo` and `make test`. Each makes its own environment, without
# root, a GPU or an installed CUDA toolkit. Another interpreter: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
ARGS   ?=

BIN   := $(VENV)/bin
comma := ,
# One environment serves one interpreter: asking for another one makes it anew.
BASE := $(VENV)/.python-$(subst /,_,$(PYTHON))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
CEPH   ?= .ceph

.PHONY: help demo test test-real test-crash test-ceph test-long lint types docs bench wheel clean

help:
	@echo 'make demo        compile a kernel, then find it again'
	@echo 'make test        run the tests'
	@echo 'also: test-crash test-real test-ceph test-long lint types docs bench wheel clean'
	@echo 'options: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) ARGS="-k name"'

$(BASE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cubinet needs Python 3.11 or newer; try make PYTHON=python3.12")'
	@echo '== making $(VENV)'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# $(call install,extras): the tick comes last, so a broken install is tried again.
define install
	@echo '== installing cubinet[$(1)] into $(VENV); the first time takes a minute'
	@$(BIN)/python -m pip install --quiet --quiet --editable '.[$(1)]'
	@touch $@
endef

$(VENV)/.run: $(BASE) pyproject.toml
	$(call install,cuda$(comma)test)

$(VENV)/.dev: $(VENV)/.run
	$(call install,dev)

$(VENV)/.docs: $(VENV)/.run
	$(call install,docs)

demo: $(VENV)/.run
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(VENV)/.run
	@$(BIN)/python -m pytest -n $(JOBS) -m 'not real and not ceph and not long' $(ARGS)

test-crash: $(VENV)/.run
	@$(BIN)/python -m pytest -n $(JOBS) -m crash $(ARGS)

# One at a time: a big kernel takes gigabytes and minutes.
test-real: $(VENV)/.run
	@$(BIN)/python -m pytest -m real --timeout 1800 $(ARGS)

test-long: $(VENV)/.run
	@$(BIN)/python -m pytest -n $(JOBS) -m long $(ARGS)

# Debian's packages in a folder: no root. The servers then run in the tests' own folders.
test-ceph: $(VENV)/.run
	@$(BIN)/python -m tests.servers.ceph $(CEPH)
	@CEPH_PREFIX=$(CEPH) $(BIN)/python -m pytest -m ceph --timeout 1800 tests/layers/test_ceph.py tests/remotes/test_contract_ceph.py $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports

types: $(VENV)/.dev
	@$(BIN)/mypy

docs: $(VENV)/.docs
	@$(BIN)/sphinx-build -q -W -n --keep-going -b html docs docs/_build/html
	@echo 'docs/_build/html/index.html'

bench: $(VENV)/.run
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script $(ARGS) || exit; done

wheel: $(VENV)/.dev
	@$(BIN)/python -m build --wheel

clean:
	@rm -rf $(VENV) build dist docs/_build htmlcov .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
