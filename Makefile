# The one entry: `make help` lists what there is. Every target sets up what it needs first (tools/setup.sh).

PYTHON := .venv/bin/python
CODE := src tests demo tools bench setup.py
# Of the clients' tests those in which it makes no difference how records are coded.
NO_CODEC := %_admin.py %_consumer_life.py %_endings.py %_groups.py %_linger.py
CODEC_TESTS := tests/unit/records tests/unit/storage tests/unit/client tests/properties/test_records_round_trip.py \
	$(wildcard tests/properties/test_client_*.py) \
	$(filter-out $(NO_CODEC),$(wildcard tests/interop/test_client_*.py))

# Tests run side by side, in one process more than there are cores, because many of them wait. PROCESSES=0: in one.
# None takes the place of one that has died: pytest-xdist 3.8 would wait for its tests for ever.
PROCESSES := auto
# What was compiled is kept, also where that is switched off: tests are hundreds of files, and start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(PYTHON) -m pytest -q --numprocesses=$(PROCESSES) --dist=loadgroup --no-loadscope-reorder \
	--max-worker-restart=0
# A round of `make soak` tries so many examples, and rounds begin for so many minutes. PROFILE=ci: a third of that.
PROFILE := soak
MINUTES := 20
SEEDS := 1000
RUNS := 20
# Without `week`, which simulates a week of loads for hours.
SUITE := kafka-go kafkajs platformatic rskafka goka faststream opentelemetry quix-streams metrics exporters security authorization console versions changes schedulers catalogs

# With LOG=path given to make, the path reaches the demo through the environment: no quoting can break it. So do BROKERS=3,
# FAULT=lose, double or late, and CONSOLE=1.
ifeq ($(origin BROKERS),command line)
DEMO_ARGUMENTS := --brokers "$$BROKERS"
endif
ifeq ($(origin FAULT),command line)
DEMO_ARGUMENTS += --fault "$$FAULT"
endif
# CONSOLE=1: the console at port 8082; another number is its port.
ifeq ($(origin CONSOLE),command line)
DEMO_ARGUMENTS += --console "$${CONSOLE}"
endif
ifeq ($(origin LOG),command line)
DEMO_ARGUMENTS += -- "$$LOG"
endif

.DEFAULT_GOAL := help
.PHONY: help demo test test-for system check docs suites soak fuzz simulate faults bench compare fmt clean console-pictures sdist wheels release setup-demo setup-dev setup-bench setup-release

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: setup-demo ## ship, follow and load 336,776 real events, and balance the books; LOG=path: a log of yours; BROKERS=3: kill a leader; FAULT=lose: see it found; CONSOLE=1: look at it in a browser
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && exec $(PYTHON) -m demo $(DEMO_ARGUMENTS)

test: setup-dev ## run the tests, but for those of `make check` and `make system`
	@$(PYTEST) -m "not system" --ignore=tests/tidy

test-for: setup-dev ## run the tests that cover a file; FILE=src/barnabas/storage/log.py
	@tests=$$($(PYTHON) tools/tests_for.py "$(FILE)") && JAVA_HOME=$$(tools/java_home.sh 2>/dev/null) $(PYTEST) $$tests

system: setup-dev ## test with Spark, clusters and their faults, ZooKeeper and Java programs; and with the codec in pure Python
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && $(PYTEST) -m system
	@BARNABAS_CODEC=pure $(PYTEST) $(CODEC_TESTS)

check: setup-dev ## ruff, mypy, import-linter, the public API against the last release, and the tidy test
	.venv/bin/ruff check $(CODE)
	.venv/bin/ruff format --check $(CODE)
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	$(PYTHON) tools/public_api.py
	$(PYTHON) -m pytest -q tests/tidy

soak: setup-dev ## search on with new examples (Hypothesis), ten times as many in a round; MINUTES=20
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); while :; do \
		$(PYTEST) -m hypothesis --hypothesis-profile=$(PROFILE) --timeout=1800 tests/unit tests/properties || exit 1; \
		[ "$$(date +%s)" -lt "$$end" ] || break; \
	done

fuzz: setup-dev ## feed the broker two million damaged frames, also before authentication, from a new seed, which it prints
	@seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') && echo "FUZZ_SEED=$$seed" && \
		FUZZ_SEED=$$seed FUZZ_FRAMES=2000000 FAILED_LOGINS=10000 MALFORMED_CONNECTIONS=20000 \
		$(PYTHON) -m pytest -q --timeout=3600 tests/fuzz tests/interop/test_security_attacks.py

simulate: setup-dev ## run whole brokers through faults in virtual time; SEEDS=1000: so many; SEED=n: one, with its story
	@exec $(PYTHON) -m tests.simulation --seeds=$(SEEDS) $(if $(SEED),--seed=$(SEED))

faults: setup-dev ## kill, stop and cut off real brokers, mirrors and ZooKeeper, each scenario RUNS=20 times; SCENARIO=n: one; SEED=n: again
	@$(if $(SCENARIO)$(SEED),,KILLS=$(RUNS) $(PYTHON) -m pytest -q --timeout=3600 tests/crash/test_broker_kill.py tests/crash/test_mirror_kill.py)
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && \
		exec $(PYTHON) -m tests.faults --runs=$(RUNS) $(if $(SCENARIO),--scenario=$(SCENARIO)) $(if $(SEED),--seed=$(SEED))

suites: setup-dev ## run the test suites of other projects' clients, and compare metrics with Prometheus and exporters; SUITE=kafkajs: one of them; SUITE=week takes hours, and runs only on request; CHECKOUT=dir: in a clone of yours
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && failed= && for suite in $(SUITE); do \
		$(PYTHON) tools/suites.py $$suite $(if $(CHECKOUT),--checkout "$(CHECKOUT)") || failed="$$failed $$suite"; \
	done; [ -z "$$failed" ] || { echo "suites with failures (docs/reference/compatibility.md names the known ones):$$failed"; exit 1; }

docs: setup-dev ## build the documentation as a site in .barnabas/site; a warning or a broken link fails
	@$(PYTHON) tools/build_site.py

console-pictures: setup-dev ## take the pictures of the console in Chromium, from a run of the demo that loses a record
	@$(PYTHON) -c 'import playwright' 2>/dev/null || $(PYTHON) -m pip install --quiet --disable-pip-version-check playwright
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && exec $(PYTHON) tools/console_pictures.py $(CONSOLE)

bench: setup-bench ## measure beside every peer, and write docs/benchmarks.md; BENCH=quick or full, W="W1 W4": some
	@JAVA_HOME=$$(tools/java_home.sh) && export JAVA_HOME && exec $(PYTHON) -m bench $(W)

compare: setup-dev ## measure the checkout beside an older commit, in pairs of runs; BASE=commit; W="W1 W4": some; PAIRS=7; JSON=file
	@exec $(PYTHON) -m bench.compare --base="$$BASE" $(if $(PAIRS),--pairs="$$PAIRS") $(if $(JSON),--json="$$JSON") -- $(W)

sdist: setup-release ## build the source distribution into dist/, and check its description
	@$(PYTHON) tools/wheels.py --only sdist

wheels: setup-release ## build, audit and try the source distribution and all wheels in dist/; ONLY=aarch64: some
	@$(PYTHON) tools/wheels.py $(if $(ONLY),--only "$(ONLY)")

release: setup-dev setup-release ## check, build and tag a version, and print the commands that publish it; VERSION=1.2.0; DRY=1: no tag
	@$(PYTHON) tools/release.py "$(VERSION)" $(if $(DRY),--dry-run)

fmt: setup-dev ## format the code, and mend what ruff can mend
	.venv/bin/ruff check --fix $(CODE)
	.venv/bin/ruff format $(CODE)

clean: ## remove what make made: the virtual environment, caches, and the demo's data
	rm -rf .venv .barnabas .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist spark-warehouse metastore_db src/barnabas.egg-info
	rm -f src/barnabas/records/*_compiled.c src/barnabas/records/*_compiled*.so
	find src tests demo -name __pycache__ -type d -prune -exec rm -rf {} +

setup-demo:
	@tools/setup.sh demo

setup-dev:
	@tools/setup.sh dev

setup-bench:
	@tools/setup.sh bench

setup-release:
	@tools/setup.sh release
