# Every target does its own set-up: a private virtual environment with the locked versions, made again when the
# locks change. Needed on the machine: Python 3.11 to 3.13, Java 17 or 21, make, and a package index.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
# Hundreds of processes import Dagster, pandas and Spark here: from source, each of them takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKS := requirements/bootstrap.lock requirements/dev.lock
# Named after what was installed, not after a time: a checkout of other locks makes the environment again.
READY := $(VENV)/.installed-$(shell cat $(LOCKS) pyproject.toml | cksum | cut -d ' ' -f 1)
# Tests on five workers, which wait about as often as they work. Tests that share servers stay together: all on Spark, all
# on a Kafka broker, else those of a file. tests/support/work_groups.py says so, and puts what takes longest first;
# pytest-xdist would start with the groups of the most tests.
WORKERS ?= 5
PYTEST_ARGUMENTS ?=
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --max-worker-restart 0

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock"
EVERYTHING := --extra demo --extra dg --extra service --group dev pyproject.toml requirements/build.in

.PHONY: help demo demo-s3 demo-kafka demo-distcp demo-sink demo-cdc demo-into demo-service demo-cluster service test proof torture soak bench bench-peers lint format dagster lock upgrade setup check-python check-java clean

help:  ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: check-java $(READY)  ## Real tables, a run killed in the middle, its recovery, and the proof
	@$(BIN)/python -m demo.run_demo

demo-s3: check-java $(READY)  ## The same on an object store: a real server that speaks S3, which Go builds once
	@$(BIN)/python -m demo.run_demo --s3

demo-kafka: check-java $(READY)  ## The same with topics: a real broker, aborted transactions, late and broken records
	@$(BIN)/python -m demo.kafka.run_demo

demo-distcp: $(READY)  ## The same with files: a tree is copied, changed, copied again by a run that is killed, and compared
	@$(BIN)/python -m demo.distcp.run_demo

demo-sink: check-java $(READY)  ## A topic that several workers publish at once: they join, die and leave, and the broker is killed
	@$(BIN)/python -m demo.sink.run_demo

demo-into: check-java $(READY)  ## Rows loaded into tables, a topic and a table of Iceberg by runs that are killed, and the proof
	@$(BIN)/python -m demo.into.run_demo

demo-cdc: check-java $(READY)  ## Tables followed by their change log while they are written to: a copy, a kill, a table more, the proof
	@$(BIN)/python -m demo.cdc.run_demo

demo-service: check-java $(READY)  ## Four flows by REST (tables, a copy, a topic, changes), whose executors are all killed, and the proof
	@$(BIN)/python -m demo.service.run_demo

demo-cluster: check-java $(READY)  ## The same flows on three nodes, Dagster, processes and two logs; one of each is killed
	@$(BIN)/python -m demo.service.run_cluster

service: check-java $(READY)  ## The same, and then the service stays up with its pages on http://localhost:8080
	@$(BIN)/python -m demo.service.run_demo --keep

test: check-java $(READY)  ## The tests, with ruff, mypy and the import contracts among them; GOBBLIN_TEST_SEED=n repeats a share
	@echo "Bringing what the tests' servers are made of (once; minutes where nothing is cached)"
	@$(BIN)/python -m tests.support.prepare
	$(PYTEST) $(PYTEST_ARGUMENTS)

torture: check-java $(READY)  ## Kills, pauses, full disks, lost answers and brokers for MINUTES=n, then the verdict; SEED=s repeats a schedule
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),2) $(if $(SEED),--seed $(SEED))

soak: $(READY)  ## The service at work at a low load for MINUTES=n (120), then the verdict: does anything grow? DAGSTER=1 adds one
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),120) $(if $(DAGSTER),--dagster)

proof: check-java $(READY)  ## The thorough tests, every fault and pair of faults, 10,000 random histories, every mutant: an hour or two
	$(PYTEST) -m thorough
	$(BIN)/python -m tests.simulation.proof

bench: check-java $(READY)  ## The figures of docs/BENCHMARKS.md, measured on this machine
	$(BIN)/python -m benchmarks

bench-peers: check-java $(READY)  ## What a person types, beside dlt and rclone; then tables beside dlt, Sling, ingestr, Spark
	$(BIN)/python -m benchmarks --only typed_commands --only peers --only warm_spark

lint: $(READY)  ## Only ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## Lay the code out
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dagster: check-java $(READY)  ## Dagster's UI and daemon on the jobs of demo/, or on those that GOBBLIN_JOBS names; PORT=n
	@PATH="$(CURDIR)/$(BIN):$$PATH" exec $(BIN)/gobblin-assets dagster dev -w workspace.yaml $(if $(PORT),--port $(PORT))

lock: $(READY)  ## Write the locks again from pyproject.toml, keeping the versions that still fit
	$(COMPILE) $(UPGRADE) $(EVERYTHING) --output-file requirements/dev.lock
	$(COMPILE) --constraints requirements/dev.lock requirements/build.in --output-file requirements/bootstrap.lock
	$(COMPILE) --constraints requirements/dev.lock pyproject.toml --output-file requirements/runtime.lock

upgrade:  ## The same, with the newest versions that fit
	$(MAKE) lock UPGRADE=--upgrade

setup: check-java $(READY)  ## Only the set-up

check-python:
	@command -v $(PYTHON) > /dev/null || { echo "python: expected version 3.11 to 3.13, found no $(PYTHON). Install one, or say make PYTHON=... $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) tools/check_machine.py

check-java: check-python
	@$(PYTHON) tools/check_machine.py java

$(READY): | check-python
	@echo "Setting up $(VENV) with the locked versions (once; a few minutes where nothing is cached)"
	rm -f $(VENV)/.installed-*
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --no-build-isolation --require-hashes requirements/dev.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

clean:  ## Remove the environment and what tools keep; the demo's and Dagster's state stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
