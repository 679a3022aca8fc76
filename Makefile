# Every target makes its own environment in .venv: `make demo` works right after `git clone`.
#
#   make demo          a look at what Millstream does
#   make test          all tests but the soak tests      (make test ARGS="-k window"; JOBS=3 for fewer processes)
#   make lint          ruff, import contracts, pyrefly; where npm is, the console's types
#   make check         lint, and the tests that need no server and no Spark: before each commit
#   make format        let ruff rewrite the files
#   make bench         the benchmarks                    (ARGS=…)
#   make conformance   ksqlDB's query cases              (ARGS="--file joins --failures 10")
#   make soak          the tests that run for long     (MILLSTREAM_SOAK_SECONDS=… for clients, MILLSTREAM_SOAK_CLUSTER_SECONDS=… for a cluster under faults; 1800 each)
#   make mutants       changes the core in small ways, and finds what no test notices (ARGS="--module session --seed 2")
#   make lock          write constraints.txt anew: the newest versions that pyproject.toml allows
#   make clean         remove caches and build results; `make distclean` also removes .venv
#
# SPARK=no leaves PySpark out even where there is Java, and the demo does not run it even where it is installed.

PYTHON ?= python3
SPARK ?= auto
MILLSTREAM_SHARED ?= ../shared
ARGS ?=
# Twice the cores, so that a core has work while tests wait. Four times as many take a sixth more of CPU on two cores.
cores := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS ?= $(shell echo $$((2 * $(cores) < 8 ? 2 * $(cores) : 8)))
# A run that takes this long ends between two tests and reports what it has.
TEST_SECONDS ?= 4200
VENV := .venv
QUICK := tests/architecture tests/sql tests/planner tests/logcore/replication tests/executor/operators tests/executor/formats
RUN := $(VENV)/bin/python

# PySpark needs Java 17 or newer. Old releases call themselves "1.8".
java_command := $(if $(JAVA_HOME),"$(JAVA_HOME)/bin/java",java)
java_major := $(shell $(java_command) -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1)
java := $(shell [ "$(or $(java_major),0)" -ge 17 ] && echo yes)
spark := $(if $(filter no,$(SPARK)),,$(java))
comma := ,
extras := dev,demo$(if $(spark),$(comma)spark)
pip = $(RUN) -m pip install --quiet --disable-pip-version-check --retries 10 --no-compile
installed := $(VENV)/.installed$(if $(spark),-with-spark)

export MILLSTREAM_SHARED
# Images of containers often set it. Each of the hundreds of processes that the tests start would then compile 800
# modules and compute the grammar's table: 3.3 s of CPU, not 2.1.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint format bench conformance soak mutants lock clean distclean environment java-note
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   \(make .*\)/\1/p' Makefile

environment: $(installed)

# Nothing is compiled at the installation. Pip would compile 177 MB of Python, a minute on one core; of these all tests
# import 54 MB, which are compiled as they are imported. Pip comes first: that of Python 3.11 (23) takes twice as long to
# choose among the files of 190 packages, that of 3.14 (26) shows setuptools' warnings.
$(installed): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Millstream needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true): name another one with 'make PYTHON=python3.12 …'." >&2; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu it is in the package python3-venv." >&2; exit 1; }
	@echo "make: installing Millstream with [$(extras)] into $(VENV)$(if $(spark), (PySpark is half a gigabyte: a minute or two))"
	@$(pip) 'pip>=25,<26'
	@$(pip) -c constraints.txt -e '.[$(extras)]'
	@$(RUN) scripts/import_tree.py >/dev/null
	@rm -f $(VENV)/.installed*
	@touch $@

java-note:
ifeq ($(spark),)
	@echo "make: $(if $(java),SPARK=no,no Java runtime (17 or newer) found): going without PySpark; with it, queries also run on Spark and the tests marked 'spark' are not skipped."
endif

demo: $(installed) java-note
	@$(RUN) -m millstream demo $(ARGS) $(if $(filter no,$(SPARK)),--executor duckdb)

# What all workers need is made once, before they begin: the compiled loops, and beside them the list of all tests, in the
# process that the workers are forked from (tests/support/forked_workers.py). It imports modules that compile their loops
# when they are loaded, so these come first.
test: $(installed) java-note
	@$(RUN) -m scripts.compile_kernels --loaded; \
	$(RUN) -m scripts.compile_kernels & \
	MILLSTREAM_TESTS_WAIT_FOR=$$! $(RUN) -m scripts.run_tests -n $(JOBS) --dist loadfile --no-loadscope-reorder --session-timeout $(TEST_SECONDS) $(ARGS)

# Lint and the tests run beside each other, and both run to their end. The tests compute and wait for nothing: a worker for
# each core is enough.
check: $(installed)
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	$(linted) >"$$said" 2>&1 & linting=$$!; \
	$(VENV)/bin/pytest -n auto --dist loadfile --no-loadscope-reorder -q $(QUICK) $(ARGS); tests=$$?; \
	wait $$linting; lint=$$?; cat "$$said"; exit $$((tests | lint))

soak: $(installed) java-note
	@$(VENV)/bin/pytest -m soak $(ARGS); long=$$?; \
	MILLSTREAM_DRAWN_TIMES=5 $(VENV)/bin/pytest $$(grep -rlE --include='test_*.py' 'import (drawn|given)' tests); exit $$((long | $$?))

mutants: $(installed)
	@MILLSTREAM_DRAWN_TIMES=2 $(RUN) -m scripts.mutants $(ARGS)

# All steps run, whatever the first ones say.
define linted
( failed=; step() { echo "--- $$*"; "$$@" || failed="$$failed $$1"; }; \
step $(VENV)/bin/ruff check .; \
step $(VENV)/bin/ruff format --check .; \
step $(RUN) -m scripts.lint_imports; \
step $(RUN) -m scripts.lint_types; \
step $(RUN) scripts/lint_console.py; \
test -z "$$failed" )
endef

lint: $(installed)
	@$(linted)

format: $(installed)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(installed) java-note
	@$(RUN) -m bench $(ARGS)

conformance: $(installed)
	@test -f "$(MILLSTREAM_SHARED)/qtt/run_cases.py" || { \
	  echo "make conformance: NOT RUN, there are no cases at '$(MILLSTREAM_SHARED)/qtt': name their folder with MILLSTREAM_SHARED=…" >&2; exit 1; }
	@$(RUN) "$(MILLSTREAM_SHARED)/qtt/run_cases.py" $(ARGS)

# In an environment of its own: what this one has is what the old file says. It wants Java, for PySpark's packages.
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check --retries 10 -e '.[$(extras),frames,notebook,sqlalchemy]'
	build/lock/bin/python scripts/lock.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
