# Every target works in .venv at the root of the repository and makes it when it is missing; `make help` lists them.
# Only make and a Python 3.11 or later are needed. Environments are made by .ci/environment.py from pyproject.toml.

.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help
.PHONY: help demo test test-services test-airflow test-versions stress fuzz lint format bench docs dist clean

VENV := .venv
PY := $(VENV)/bin/python
# Spark 3.5 with Iceberg Java cannot share an environment with Spark 4.
VENV_JAVA := .venv-java
PY_JAVA := $(VENV_JAVA)/bin/python
# pypaimon and paimon-rust pin an older pyarrow: the other readers and writers of Paimon have an environment of their own.
VENV_PAIMON := .venv-paimon

# The Python that environments are made with: the first one that is new enough and works.
PYTHON = $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && { echo "$$python"; break; }; done)
NEED_PYTHON = @test -n "$(PYTHON)" || { echo "make: no Python 3.11 to 3.14 found; install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
# What the tests compare with has no release for Python 3.14 yet: its environments are made with an older one.
PEERS_PYTHON = $(shell for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && { echo "$$python"; break; }; done)
NEED_PEERS_PYTHON = @test -n "$(PEERS_PYTHON)" || { echo "make: no Python 3.11 to 3.13 found for what the tests compare with; install one, or name it: make PEERS_PYTHON=/path/to/python" >&2; exit 1; }

# A stamp says what an environment holds; it is older than pyproject.toml when that has changed.
DEMO := $(VENV)/.stamp-demo
DEV := $(VENV)/.stamp-dev
JAVA := $(VENV_JAVA)/.stamp
PAIMON := $(VENV_PAIMON)/.stamp
CLASSES := $(VENV)/.spark-classes.jsa
RECIPE := pyproject.toml .ci/environment.py

# The Java for each Spark: the machine's, or the one from a wheel.
SPARK_JAVA = JAVA_HOME="$$($(PY) -m airflow_iceberg.jobs.spark.installation java-home 17 21)"
ICEBERG_JAVA = ICEBERG_JAVA_PYTHON="$(CURDIR)/$(PY_JAVA)" \
	ICEBERG_JAVA_HOME="$$(PYTHONPATH=. $(PY_JAVA) -m airflow_iceberg.jobs.spark.installation java-home 8 11 17)"
SPARK_ENV = SPARK_LOCAL_IP=127.0.0.1 $(SPARK_JAVA) $(ICEBERG_JAVA) PAIMON_PYTHON="$(CURDIR)/$(VENV_PAIMON)/bin/python"
# Compiled modules are kept, whatever the machine says: each of the many processes of the tests would compile Airflow anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) -m pytest
# What to hand to pytest, for example: make test ARGS="tests/format -x"
ARGS ?=
# Processes that share the tests: a file is run by one of them, and so are all files that need the same Spark. More than
# the two cores that are expected, since tests wait a good deal, but each collects all tests; tests/conftest.py puts the
# longest files first.
WORKERS ?= 3
# A worker that dies fails the run; one that is started in its place would never be given its tests.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# What `make stress` makes its cases from: new ones each time.
SEED := $(or $(SEED),$(shell date +%s))

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO)  ## load real data into an Iceberg table with Airflow and Spark, and show what came of it
	@$(PY) dags_examples/demo.py

test: $(DEV) $(JAVA) $(PAIMON) $(CLASSES)  ## run all tests that need nothing but this machine
	@mkdir -p build
	@$(SPARK_ENV) $(PYTEST) -m "not services and not costly and not long" $(PARALLEL) $(ARGS)

test-services: $(DEV) $(JAVA) $(CLASSES)  ## run the tests against services, started for the run
	@mkdir -p build
	@$(SPARK_ENV) $(PYTEST) -m "(services or costly) and not long" $(PARALLEL) $(ARGS)

test-airflow:  ## run the Airflow tests in Airflow 3.1, 3.2, 3.3 and later ones, each in its own environment; VERSIONS=3.1
	$(NEED_PYTHON)
	@"$(PYTHON)" .ci/airflow_versions.py --versions $(VERSIONS) -- $(ARGS)

test-versions: $(DEV) $(JAVA)  ## run the tests of DuckDB and Spark in each version of them from DuckDB 1.5 and Spark 3.5 on; VERSIONS="duckdb-2.0 spark"
	@mkdir -p build
	@$(ICEBERG_JAVA) $(PY) .ci/engine_versions.py --versions $(VERSIONS) -- $(ARGS)

stress: $(DEV) $(JAVA) $(PAIMON)  ## run what takes hours: races and stress at full length, all generated cases, from a new seed or SEED=7
	@mkdir -p build
	@echo "the cases are those of SEED=$(SEED)"
	@AIRFLOW_ICEBERG_TEST_SEED=$(SEED) $(SPARK_ENV) $(PYTEST) -m "long or generated" --hypothesis-seed=$(SEED) $(ARGS)

fuzz: $(DEV)  ## feed a million damaged files of metadata to the readers; ARGS="--runs 5000000 --seed 7"
	@$(PY) -m tests.fuzz $(ARGS)

lint: $(DEV)  ## check style and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: $(DEV)  ## put the code into the common shape
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(DEV) $(JAVA) $(PAIMON)  ## measure side by side with the peers, into build/bench.json; ARGS="orphans --runs 5"
	@mkdir -p build
	@$(SPARK_ENV) $(PY) -m tests.benchmarks $(ARGS)

# Never with --quiet: it hides the warnings from --strict, which then passes.
docs: $(DEV)  ## build the documentation into build/docs; a broken link or a page outside of the navigation fails
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --config-file .ci/mkdocs.yml
	@echo "build/docs/index.html"

dist:  ## build wheel and sdist into dist/, check them, install them with pip and with uv; ARGS=--demo runs the demo
	$(NEED_PYTHON)
	@"$(PYTHON)" .ci/distribution.py $(ARGS)

clean:  ## remove everything that was built, the environments too
	rm -rf build dist $(VENV) $(VENV_JAVA) $(VENV_PAIMON) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find airflow_iceberg dags_examples tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO): $(RECIPE)
	$(NEED_PYTHON)
	@"$(PYTHON)" .ci/environment.py $(VENV) --project --extras spark duckdb --groups demo --java 17 21
	@touch $@

$(DEV): $(DEMO)
	@"$(PYTHON)" .ci/environment.py $(VENV) --project --extras spark duckdb --groups test lint docs --compile
	@touch $@

# What each Spark of the tests would load and check anew: Java's archive of Spark's classes.
$(CLASSES): $(DEV)
	@SPARK_LOCAL_IP=127.0.0.1 $(SPARK_JAVA) $(PY) -m tests.support.java_classes $@

$(JAVA): $(RECIPE)
	$(NEED_PEERS_PYTHON)
	@"$(PEERS_PYTHON)" .ci/environment.py $(VENV_JAVA) --groups spark35 --java 8 11 17 --compile
	@touch $@

$(PAIMON): $(RECIPE)
	$(NEED_PEERS_PYTHON)
	@"$(PEERS_PYTHON)" .ci/environment.py $(VENV_PAIMON) --groups paimon --compile
	@touch $@
