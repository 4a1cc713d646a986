# Needs make, Python 3.11 or newer and a network; everything else is fetched once and cached.
# `make` alone lists the targets. Another interpreter: make PYTHON=python3.13 test

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
REPORTS := build/reports
PYTEST := $(BIN)/python -m pytest
SOURCES := src tests tools bench docs
HEAVY := apache or spark
# Tests with a broker mostly wait, so two processes take half the time; a file's tests share servers.
TWO_PROCESSES := -n 2 --dist loadfile
# On CI (CI=true) a skipped test is a failure: nothing there may be missing.
NO_SKIPS = if [ "$${CI:-}" = true ]; then $(BIN)/python tools/no_skips.py $(1); fi

export PYTHON

.PHONY: help demo test matrix check bench soak docs conformance figures format lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# On the embedded cluster; on the real RocketMQ with ARGS="--engine apache".
demo: $(VENV)/.ready ## the whole story on this machine, in about a minute (ARGS="options")
	@$(BIN)/gimbalmq demo $(ARGS)

# ARGS replaces the two standard runs by one of your own: make test ARGS=tests/golden
test: $(VENV)/.ready ## every test, on one engine and version (ARGS="pytest arguments")
ifdef ARGS
	@$(PYTEST) $(ARGS)
else
	@rm -rf $(REPORTS)/test
	@echo "== tests without broker and Spark, two processes"
	@$(PYTEST) -q -n 2 -m "not ($(HEAVY) or matrix or product or soak)" --junitxml=$(REPORTS)/test/unit.xml
	@echo "== tests on real RocketMQ and Spark, two processes"
	@$(PYTEST) $(TWO_PROCESSES) -m "($(HEAVY)) and not (product or soak)" --junitxml=$(REPORTS)/test/heavy.xml
	@$(call NO_SKIPS,$(REPORTS)/test)
endif

matrix: $(VENV)/.ready .venv-spark42/.ready ## the products: RocketMQ versions, engines, Spark versions
	@rm -rf $(REPORTS)/matrix
	@echo "== RocketMQ 5.5.0: what needs minutes of its own (make test runs the rest)"
	@$(PYTEST) $(TWO_PROCESSES) -m "product and apache and not (spark or soak)" \
	    --junitxml=$(REPORTS)/matrix/rocketmq-5.5.0.xml
	@echo "== RocketMQ 4.9.5"
	@$(PYTEST) $(TWO_PROCESSES) -m "(matrix or product) and apache and not (spark or soak)" --rocketmq-version=4.9.5 \
	    --junitxml=$(REPORTS)/matrix/rocketmq-4.9.5.xml
	@echo "== the embedded cluster: every test of a client, with Java's clients of 5.5.0"
	@$(PYTEST) $(TWO_PROCESSES) -m "engines and not (product or soak)" --rocketmq-engine=embedded \
	    --junitxml=$(REPORTS)/matrix/embedded-5.5.0.xml
	@echo "== Spark 4.2 on RocketMQ 4.9.5, and what needs minutes of its own"
	@.venv-spark42/bin/python -m pytest $(TWO_PROCESSES) -m "(spark or not apache) and (matrix or product) and not soak" \
	    --rocketmq-version=4.9.5 --junitxml=$(REPORTS)/matrix/spark-4.2.xml
	@$(call NO_SKIPS,$(REPORTS)/matrix)

check: $(VENV)/.ready ## format, lint, types, layers, spelling, locks, links, conformance
	@$(BIN)/python tools/check.py

bench: $(VENV)/.ready ## every benchmark, as tables (BENCH_ARGS="--save allocation")
	@$(BIN)/python tools/bench.py $(BENCH_ARGS)

soak: $(VENV)/.ready ## long campaigns; the result goes to docs/results/soak.json (ARGS="--only NAME")
	@$(BIN)/python tools/soak.py $(ARGS)

docs: .venv-docs/.ready ## the documentation as HTML in build/docs, warnings are errors
	@.venv-docs/bin/python -m sphinx -q -W --keep-going -E -b html docs build/docs
	@echo "build/docs/index.html"

conformance: $(VENV)/.ready ## write docs/conformance.md from the tests' rule markers
	@$(BIN)/python tools/conformance.py --write

figures: $(VENV)/.ready ## write the figures of README and docs from docs/results
	@$(BIN)/python tools/figures.py --write

format: $(VENV)/.ready ## format the code and apply safe lint fixes
	@$(BIN)/ruff check -q --fix --exit-zero $(SOURCES)
	@$(BIN)/ruff format -q $(SOURCES)

lock: $(VENV)/.ready ## resolve the lock files again (LOCK_ARGS=--upgrade for newest versions)
	@$(BIN)/python tools/locks.py --write $(LOCK_ARGS)

clean: ## remove environments and everything built
	rm -rf $(VENV) .venv-spark42 .venv-docs build dist .pytest_cache .mypy_cache .ruff_cache \
	    .import_linter_cache .hypothesis spark-warehouse metastore_db derby.log

# An environment is ready when its stamp is newer than what it was made from.
ENVIRONMENT := tools/venv.sh requirements/bootstrap.txt

$(VENV)/.ready: requirements/dev.txt pyproject.toml $(ENVIRONMENT)
	@tools/venv.sh $(VENV) requirements/dev.txt --editable
	@touch $@

.venv-spark42/.ready: requirements/spark42.txt pyproject.toml $(ENVIRONMENT)
	@tools/venv.sh .venv-spark42 requirements/spark42.txt --editable
	@touch $@

.venv-docs/.ready: requirements/docs.txt $(ENVIRONMENT)
	@tools/venv.sh .venv-docs requirements/docs.txt
	@touch $@
