# Stage 0: makes the tool's own environment (.venv) and hands over to the verbs of `cpubuild`.
#   make bootstrap ARGS="--vllm 0.32.0"      make -s verify ARGS=--json      make test
# Everything this file says of itself goes to stderr: stdout belongs to the verb.

.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
VERBS := check plan bootstrap verify repair status clean rollback report model tune serve ask chat web bench diagnose
TEST_PACKAGES := chromium cloud-init g++ git git-lfs numactl redis-server systemd
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help $(VERBS) test test-fast lint
help: .venv/.tool
	@$(BIN)/cpubuild --list

$(VERBS): .venv/.tool
	@exec $(BIN)/cpubuild $@ $(ARGS)

# A distribution's Python may come without venv: then, as root and unless CPUBUILD_NO_SYSTEM is set,
# it is installed; else the command is named.
.venv/.tool: pyproject.toml build/cpubuild/__init__.py
	@{ $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' && \
	   $(PYTHON) -m venv .venv; } >&2 || \
	 { rm -rf .venv; need="python3 python3-venv"; \
	   if [ "$$(id -u)" = 0 ] && [ -z "$$CPUBUILD_NO_SYSTEM" ] && command -v apt-get >/dev/null; then \
	     { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$need; } >&2 && \
	     /usr/bin/python3 -m venv .venv >&2; \
	   else \
	     echo "FAIL no Python >= 3.11 with venv: $(PYTHON) does not serve" >&2; \
	     echo "     do:  apt-get install $$need   # or: make PYTHON=/path/to/python3.11" >&2; exit 4; \
	   fi; }
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1' >&2
	@$(BIN)/python -m pip install -q -e . >&2
	@touch $@

.venv/.dev: .venv/.tool
	@$(BIN)/python -m pip install -q --group dev >&2
	@touch $@

# What the tests use of the operating system: a browser, servers, the checkers of what is written for
# others, by Debian's names. As root where there is apt they are installed, unless CPUBUILD_NO_SYSTEM is set; a test
# that misses one names it.
.venv/.host: Makefile .venv/.dev
	@if [ "$$(id -u)" = 0 ] && [ -z "$$CPUBUILD_NO_SYSTEM" ] && command -v apt-get >/dev/null && \
	    ! dpkg-query -W $(TEST_PACKAGES) >/dev/null 2>&1; then \
	   apt-get update -q && \
	   DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(TEST_PACKAGES); \
	 fi >&2
	@touch $@

# The whole suite; the last part works on the real vLLM and bootstraps it if it is not there yet.
test: .venv/.host
	$(BIN)/python -m pytest -n 2 -m "not e2e" $(ARGS)
	$(BIN)/python -m pytest -m e2e $(ARGS)

test-fast: .venv/.dev
	$(BIN)/python -m pytest -n 2 tests/unit $(ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
