# Two commands are all a new user needs: `make pong` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
MINUTES ?= 0
# Workers for the tests: one more than there are cores, because some tests wait for processes. Every one loads torch.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))

.PHONY: setup pong test test-gpu test-bounds test-cluster test-replicas chaos docs lint clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dqnitro needs Python 3.11 or newer; hint: make setup PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

pong: $(READY)
	$(BIN)/dqnitro train pong --recipe auto --minutes $(MINUTES)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# On a machine with an NVIDIA GPU: everything that needs one, with the extra that compiles for it. One process, because
# several would only take turns on the GPU.
test-gpu: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,cuda]'
	$(BIN)/python -m pytest -m gpu -rs

# The console with a check of every index, compiled for that, on random ROMs: two minutes on two cores.
test-bounds: $(READY)
	DQNITRO_TEST_BOUNDS=1 $(BIN)/python -m pytest tests/atari/test_exact.py -k stay_inside -rs

# A Ray cluster of three nodes on this machine, whose players and nodes are killed: some minutes on two cores.
test-cluster: $(READY)
	DQNITRO_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/cluster -rs

# Ranks of one learner as processes on this machine, killed, stopped and interrupted: some minutes on two cores.
test-replicas: $(READY)
	DQNITRO_TEST_REPLICAS=1 $(BIN)/python -m pytest tests/commands/test_replicas_command.py -rs

# Over 2,000 faults of all kinds, 40 minutes on one core; `make test` makes 300 of them. docs/chaos.md
chaos: $(READY)
	PYTHONPATH=tests $(BIN)/python -m chaos $(CHAOS)

# The documents as a site, in site/: any warning is an error.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache
