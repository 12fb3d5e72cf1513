# Everything that is done to this repository; `make` lists it. CI runs these same targets (.ci/run).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# The version is stamped below; asking git once more fails where the checkout belongs to another user.
given_goflags := $(GOFLAGS)
export GOFLAGS = $(given_goflags) -buildvcs=false

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X github.com/freeslot/freeslot/internal/process/version.stamped=$(VERSION)

RUN_ARGS ?=
DEMO_ARGS ?=
TEST_ARGS ?=
PYTEST_ARGS ?=
# Bounds each package, for a machine that is slow and busy: tests themselves give up when nothing moves.
TEST_TIMEOUT ?= 30m
# Compilers, linters and tests with the race detector make much garbage, and end before it fills a machine's memory:
# lint takes half the time like this.
FEW_GCS := GOGC=400 GOMEMLIMIT=4GiB
# Without tables for debuggers, which nothing here reads, a hundred programs are linked a fifth faster.
RACE := -race -vet=off -ldflags=-w -timeout $(TEST_TIMEOUT)
FUZZTIME ?= 10s
BENCH ?= .
BENCH_COUNT ?= 1
BENCH_PACKAGES ?= ./...
BENCH_ARGS ?= -benchmem
BENCH_E2E_ARGS ?= -parts everysec
BENCH_CORE_ARGS ?=
BENCH_LOCKS_ARGS ?=
BENCH_REGISTRY_ARGS ?=
BENCH_LISTS_ARGS ?=
BENCH_SDK_ARGS ?=
BENCH_SIM_ARGS ?=
BENCH_PEERS_ARGS ?=
BENCH_GATE_ARGS ?=

DOCKER_MODULE := internal/testing/redistest/docker
PEERS := bench/peers/asynq bench/peers/etcd bench/peers/machinery bench/peers/nats bench/peers/river
E2E := test/e2e
CONSOLE_TEST := test/console
FAULTS := test/faults
CONFORMANCE := test/conformance
BOARDS := test/boards
HELM := test/helm
RELEASE := tools/release
COMPOSE_TEST := test/compose
OPENFEATURE := namelist/openfeature
# console-check builds beside it, and compares.
CONSOLE_DIST ?= $(CURDIR)/internal/console/dist
TOOL := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
# TEST NAME PACKAGES ARGUMENTS: a test that fails runs once more; make test names it at its end.
TEST := GO='$(GO)' $(CURDIR)/scripts/test.sh

.PHONY: help
help: ## list the targets
	@echo "freeslot: make TARGET [VARIABLE=value]"; echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo; echo "  variables: RUN_ARGS, DEMO_ARGS, TEST_ARGS, FUZZTIME, BENCH, BENCH_COUNT, BENCH_ARGS, BENCH_E2E_ARGS, BENCH_CORE_ARGS, BENCH_LOCKS_ARGS, BENCH_LISTS_ARGS, BENCH_SDK_ARGS, BENCH_SIM_ARGS, BENCH_PEERS_ARGS, BENCH_GATE_ARGS, BASE,"
	@echo "    SEED, DURATION and SHORT=1 for faults, BASE and SEED for upgrade-test, DURATION for soak"

.PHONY: run
run: build ## bring up Redis, schedulers and nodes here and watch jobs run (RUN_ARGS=--exit: one batch)
	@scripts/deps.sh redis || echo "make run: going on without; scheduler dev has a stand-in where no redis-server is" >&2
	@exec bin/scheduler dev $(RUN_ARGS)

# The tag leaves out templates, with which nodeagent is twice as large.
.PHONY: build
build: ## build bin/scheduler, bin/nodeagent and bin/schedctl, and bin/devredis for scheduler dev
	@mkdir -p bin
	$(FEW_GCS) $(GO) build -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# The commit's time is the time of everything in an image or archive, so that a second run gives the same bytes.
make_release = $(GO) build -C $(RELEASE) -o $(CURDIR)/.dev/release . && .dev/release -out dist -version '$(VERSION)' \
	-revision '$(shell git rev-parse HEAD 2>/dev/null)' -time $(or $(shell git log -1 --format=%ct 2>/dev/null),0) -node-base '$(NODE_BASE)'

.PHONY: image
image: ## images of scheduler, schedctl and nodeagent with SBOMs, into dist/ (NODE_BASE=FILE or NAME: the system below nodeagent)
	@$(make_release)

.PHONY: release
release: ## a release into dist/: images, SBOMs, archives of the programs, checksums (NODE_BASE as for image)
	@$(make_release) -archives

.PHONY: deps
deps: ## install what the tests need and is missing: redis, a C compiler, node, python, docker, espeak-ng, sox, postgres, prometheus, caddy, chromium
	@scripts/deps.sh redis cc node python docker espeak sox postgres prometheus caddy chromium

.PHONY: deps-redis
deps-redis:
	@scripts/deps.sh redis

.PHONY: deps-speech
deps-speech: ## install what the speech example needs and is missing: redis, espeak-ng, sox
	@scripts/deps.sh redis espeak sox

.PHONY: console
console: ## build the console's page from console/ into internal/console/dist, which is committed (needs npm)
	@scripts/deps.sh node
	cd console && npm ci --ignore-scripts --loglevel=error && npm run --silent types && npm run --silent check
	cd console && $(TOOL) esbuild test/*.test.ts --bundle --platform=node --format=esm --outdir=node_modules/.test --out-extension:.js=.mjs --log-level=warning && \
		node --test --test-reporter=dot node_modules/.test/
	@rm -rf $(CONSOLE_DIST) && mkdir -p $(CONSOLE_DIST)
	cd console && $(TOOL) esbuild console=src/main.tsx console=src/style.css --bundle --minify --format=esm --target=es2023 --jsx=automatic \
		--jsx-import-source=preact --charset=utf8 --legal-comments=none --log-level=warning --outdir=$(CONSOLE_DIST)
	@cp console/src/index.html console/src/icon.svg $(CONSOLE_DIST)
	@cd console/node_modules && for package in preact @preact/signals @preact/signals-core uplot; do \
		echo "== $$package"; cat $$package/LICENSE; echo; done >$(CONSOLE_DIST)/LICENSES.txt

.PHONY: console-check
console-check: ## build the console's page anew, and compare it with what is committed
	@$(MAKE) console CONSOLE_DIST=$(CURDIR)/.dev/console
	@diff -r internal/console/dist .dev/console || { echo "internal/console/dist is not what console/ makes; run make console, and commit it" >&2; exit 1; }

.PHONY: test
test: deps ## everything to be sure of a change: race, docker-test, e2e, sdk-test (about 13 minutes on 2 cores; lint is apart)
	@rm -f .dev/twice-*.txt
	@for part in race-product "race-gateway race-modules docker-test e2e sdk-test"; do \
		begin=$$SECONDS; \
		echo "== $$part"; \
		$(MAKE) -j3 --output-sync=target $$part || { echo "make test: FAILED in $$part; ran:$${ran:-} $$part" >&2; exit 1; }; \
		ran="$${ran:-} $$part ($$((SECONDS - begin)) s)"; \
	done; \
	echo "make test: passed:$$ran"
	@! grep -Hs . .dev/twice-*.txt /dev/null || echo "make test: these tests ran twice; each of them has a defect"

.PHONY: vet
vet: ## go vet, in each Go module of the product (lint-peers: of the others)
	$(GO) vet ./...
	cd bench && $(GO) vet ./...
	cd $(DOCKER_MODULE) && $(GO) vet ./...
	cd $(E2E) && $(GO) vet ./...
	cd $(CONSOLE_TEST) && $(GO) vet ./...
	cd $(FAULTS) && $(GO) vet ./...
	cd $(CONFORMANCE) && $(GO) vet ./...
	cd $(OPENFEATURE) && $(GO) vet ./...

# The longest packages first, so that both processors have work until the end. Tests wait most of the time, so four of a
# package run at once. lint runs vet. The workers' tests run once more with a gateway between worker and Redis;
# -count=1, because Go does not see that they read the environment, and would repeat the result of the first run.
# The package at the top has types and texts, and no goroutines; its tests read all docs and sources.
.PHONY: race race-product
race: race-product ## all Go tests, unit and integration, with the race detector, but those of bench
	@$(MAKE) -j2 --output-sync=target race-gateway race-modules

race-product:
	packages="$$($(GO) list ./...)"; top="$$($(GO) list .)"; \
	export GOGC=200; packages="./internal/cell ./internal/dispatch ./worker \
		$$(grep -v -e "^$$top\$$" -e '/internal/cell$$' -e '/internal/dispatch$$' -e '/worker$$' <<<"$$packages")"; \
	$(TEST) race "$$packages" $(RACE) -parallel 4 $(TEST_ARGS)

# The workers wait most of the time; the others build most of the time.
.PHONY: race-gateway race-modules
race-gateway:
	FREESLOT_TEST_STORE=gateway $(TEST) race-gateway ./worker $(RACE) -count=1 -parallel 4 $(TEST_ARGS)

race-modules:
	$(GO) test -vet=off -timeout $(TEST_TIMEOUT) $(TEST_ARGS) .
	cd $(OPENFEATURE) && $(TEST) openfeature ./... $(RACE) $(TEST_ARGS)
	$(GO) test -C bench -vet=off -short -timeout $(TEST_TIMEOUT) $(TEST_ARGS) ./...

.PHONY: bench-once
bench-once: deps-redis ## each benchmark once, and those of core, the SDKs and the console, to see that they still work (not part of CI)
	@mkdir -p .dev
	$(GO) test -C bench -vet=off -timeout $(TEST_TIMEOUT) ./core ./sdk ./console
	packages="$$(grep -rl --exclude-dir=.dev --include='*_test.go' '^func Benchmark' . | xargs dirname | sort -u)"; \
	$(GO) test -timeout $(TEST_TIMEOUT) -vet=off -run '^$$' -bench . -benchtime 1x $$packages >.dev/benchmarks.log || { cat .dev/benchmarks.log >&2; exit 1; }

.PHONY: test-busy
test-busy: ## race beside four busy loops, to find tests that assert durations (not part of CI)
	@scripts/busy.sh $(MAKE) race

# One package after the other: several write the same page.
.PHONY: reference
reference: deps-redis ## write docs/reference (configuration keys, flags, metrics, log events) and docs/schema (frames) from the code
	$(GO) test -count=1 -p 1 -run Reference . ./internal/replica ./internal/replica/config ./internal/history ./internal/nodeagent ./cmd/nodeagent ./cmd/schedctl ./cmd/scheduler ./internal/lock ./internal/wire ./internal/gateway/frame ./namelist -args -update

# Each line counts as covered whichever package's test runs it. What only e2e, Docker and fault suites run does not.
.PHONY: cover
cover: deps-redis ## the coverage of the product by its Go tests (bench and test apart), into .dev/cover.out
	@mkdir -p .dev
	$(GO) test -vet=off -timeout $(TEST_TIMEOUT) -coverpkg ./... -coverprofile .dev/cover.out $(TEST_ARGS) ./...
	$(GO) tool cover -func .dev/cover.out | tail -n 1

.PHONY: integration
integration: ## only the packages that test against a real Redis, with the race detector
	$(GO) test -race -timeout $(TEST_TIMEOUT) $(TEST_ARGS) \
		$$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | awk '/freeslot\/internal\/testing\/redistest[] ]/ { print $$1 }')

.PHONY: docker-test
docker-test: ## the tests against Redis in containers, a fault suite's too; starts dockerd when no engine runs
	@mkdir -p .dev
	@engine="scripts/dockerd.sh run"; \
	if [ "$${FREESLOT_NO_DOCKER:-}" = 1 ]; then engine=""; else scripts/deps.sh redis docker; fi; \
	$$engine $(MAKE) -j2 --output-sync=target docker-redis docker-faults | tee .dev/docker-test.log

# The two wait most of the time.
.PHONY: docker-redis docker-faults
docker-redis:
	$(GO) test -C $(DOCKER_MODULE) $(RACE) -count=1 -v $(TEST_ARGS) ./...

docker-faults:
	FREESLOT_FAULTS_DOCKER=1 $(GO) test -C $(FAULTS) -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestContainer$$' .

.PHONY: deploy-test
deploy-test: boards-test helm-test ## images, deploy/compose with them, alerts, boards and the chart; starts dockerd when no engine runs (not part of CI)
	@scripts/deps.sh redis docker compose caddy prometheus
	$(GO) test -C $(RELEASE) -vet=off -timeout $(TEST_TIMEOUT) $(TEST_ARGS) ./...
	scripts/dockerd.sh run $(GO) test -C $(COMPOSE_TEST) -vet=off -count=1 -v -timeout $(TEST_TIMEOUT) $(TEST_ARGS) .

.PHONY: e2e
e2e: ## the real programs as processes, also driven by a client from npm
	@scripts/deps.sh redis node caddy
	cd $(E2E) && $(TEST) e2e ./... $(RACE) -count=1 $(TEST_ARGS)

.PHONY: conformance conformance-scenarios
conformance: deps-sdk ## prove that the clients and agents of all languages keep the protocols, also under faults (JOBS=10000)
	$(GO) test -C $(CONFORMANCE) -vet=off -count=1 -timeout $(TEST_TIMEOUT) $(TEST_ARGS) .

conformance-scenarios: deps-sdk ## of conformance only the scenarios, without real replicas
	cd $(CONFORMANCE) && $(TEST) conformance . -vet=off -count=1 -timeout $(TEST_TIMEOUT) -run '^Test(Client|Node)$$' $(TEST_ARGS)

.PHONY: deps-sdk
deps-sdk:
	@scripts/deps.sh redis node python

# The last commit without other SDKs. Set it to the commit of the last release, once there is a newer one.
COMPAT_BASE := 6e2e02de

.PHONY: compat
compat: deps-redis ## the Go client and worker of a commit against this build's replicas, also under faults (BASE=6e2e02de JOBS=10000; not part of CI)
	COMPAT_BASE='$(or $(BASE),$(COMPAT_BASE))' $(GO) test -C $(CONFORMANCE) -vet=off -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestCompat$$' $(TEST_ARGS) .

.PHONY: contract
contract: ## check OpenAPI, AsyncAPI and the JSON Schemas of docs/schema; a warning fails (needs npm; not part of CI)
	@scripts/deps.sh node
	cd test/contract && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm run --silent check

# Debian's, which has the packages that scripts/deps.sh installs.
PYTHON := /usr/bin/python3
SDK_PYTHON := sdk/python

.PHONY: sdk-python-test
sdk-python-test: build ## the Python SDK in sdk/python: its types, and its tests with real programs
	@scripts/deps.sh redis python
	cd $(SDK_PYTHON) && $(PYTHON) -m mypy src conformance_driver.py examples/espeak_worker.py
	@mkdir -p .dev && rm -f .dev/twice-python.txt
	cd $(SDK_PYTHON) && { $(PYTHON) -m pytest $(PYTEST_ARGS) || { \
		echo "tests of sdk/python, see above" >$(CURDIR)/.dev/twice-python.txt; \
		$(PYTHON) -m pytest --last-failed --last-failed-no-failures none $(PYTEST_ARGS); }; }

SDK_TYPESCRIPT := sdk/typescript

# No scripts of packages, except one: it brings the Node on which the tests run.
.PHONY: sdk-typescript-build
sdk-typescript-build:
	@scripts/deps.sh node
	@cd $(SDK_TYPESCRIPT) && npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error && npm run --silent build

.PHONY: sdk-typescript-test
sdk-typescript-test: build sdk-typescript-build ## the TypeScript SDK in sdk/typescript: types, style, and its tests with real programs and Chromium
	@scripts/deps.sh redis chromium espeak
	cd $(SDK_TYPESCRIPT) && npm rebuild --silent node && npm run --silent check
	@mkdir -p .dev && rm -f .dev/twice-typescript.txt
	cd $(SDK_TYPESCRIPT) && { npm test || { echo "tests of sdk/typescript, see above" >$(CURDIR)/.dev/twice-typescript.txt; npm test; }; }

.PHONY: sdk-test
sdk-test: sdk-python-test sdk-typescript-test conformance-scenarios ## the SDKs, and the scenarios that prove them and the Go packages

.PHONY: sdk sdk-python sdk-typescript
sdk: sdk-python sdk-typescript ## the packages of the SDKs into dist/

sdk-typescript: sdk-typescript-build
	@mkdir -p dist
	cd $(SDK_TYPESCRIPT) && npm pack --silent --pack-destination $(CURDIR)/dist

sdk-python:
	@scripts/deps.sh python
	cd $(SDK_PYTHON) && $(PYTHON) -m hatchling build -d $(CURDIR)/dist

.PHONY: console-test
console-test: ## the console in headless Chromium; SHORT=1 for half of it, as in CI (what a failed test leaves is in .dev/console-test)
	@scripts/deps.sh redis node chromium
	@cd console && npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error
	cd $(CONSOLE_TEST) && $(TEST) console . -vet=off -count=1 -timeout $(TEST_TIMEOUT) $(if $(SHORT),-short) $(TEST_ARGS)

.PHONY: console-shots
console-shots: ## take the pictures of the console for README and docs/console.md anew (three minutes)
	@$(MAKE) console-test TEST_ARGS='-run "^Test(Shots|FleetLost)$$$$" -args -update'

.PHONY: faults
faults: deps-redis ## break a fleet of real processes under load, check the history (SEED=7 DURATION=60s SHORT=1)
	$(GO) test -C $(FAULTS) -vet=off -count=1 -v -timeout 25m $(if $(SEED),-run '^Test(Lock|Registry|Lists)?Faults') $(TEST_ARGS) ./...

# The last commit before the console, backup and autoscaling: its programs know none of their keys, figures and routes.
# Set it to the commit of the last release, once there is a newer one.
UPGRADE_BASE := 12564520

.PHONY: upgrade-test
upgrade-test: deps-redis ## replace the programs of a commit by this build's under load, one by one, and go back (BASE=12564520 SEED=7; not part of CI)
	UPGRADE_BASE='$(or $(BASE),$(UPGRADE_BASE))' $(GO) test -C $(FAULTS) -vet=off -count=1 -v -timeout 25m -run '^TestUpgradeCommit$$' $(TEST_ARGS) .

.PHONY: disaster-test
disaster-test: deps-redis ## backup, restore and what docs/disaster.md promises, also what is too slow for CI
	FREESLOT_DISASTER=1 $(GO) test -race -vet=off -count=1 -v -timeout $(TEST_TIMEOUT) -run '^Test(Disaster|Backup|Restore)' $(TEST_ARGS) ./cmd/schedctl ./embed

# About 20 minutes: the importer of a list of this size is killed, too.
.PHONY: faults-lists
faults-lists: deps-redis ## name lists of 10 million ids under faults (SEED=7 DURATION=5m LISTS_MEMBERS=10000000)
	LISTS_MEMBERS=$(or $(LISTS_MEMBERS),10000000) DURATION=$(or $(DURATION),5m) $(GO) test -C $(FAULTS) -count=1 -v -timeout 0 -parallel 1 -run '^TestListsFaults' $(TEST_ARGS) .

.PHONY: boards
boards: ## write the boards of deploy/grafana from boards.yaml
	$(GO) test -C $(BOARDS) -count=1 -run '^TestBoards$$' . -args -update

.PHONY: boards-test
boards-test: ## alerts and boards: each expression against the metrics that exist, each alert on planted series and on a healthy hour
	@scripts/deps.sh prometheus
	$(GO) test -C $(BOARDS) -vet=off -count=1 -timeout $(TEST_TIMEOUT) $(TEST_ARGS) ./...

# Six minutes: it waits for the system to settle, and records five.
# Not a part of test: Helm and Kubernetes are a thousand packages, ten minutes to build on a machine that never did.
.PHONY: helm-test
helm-test: deps-redis ## the Helm chart: lint, six sets of values into Kubernetes' types, the programs with their configurations (no cluster)
	$(GO) test -C $(HELM) -count=1 -timeout $(TEST_TIMEOUT) $(TEST_ARGS) .

.PHONY: boards-record
boards-record: build deps-redis ## record a healthy system anew, for the test that no alert fires in it
	$(GO) run -C $(BOARDS) ./record

.PHONY: attack
attack: build deps-redis ## let one tenant, node token or stranger try to take everything, and measure the others (half a minute)
	$(GO) run ./test/attack -scheduler bin/scheduler

.PHONY: soak
soak: deps-redis ## a steady load for an hour (DURATION=3m): memory and goroutines must not grow; samples in .dev/soak
	SOAK=$(or $(DURATION),1h) $(GO) test -C $(FAULTS) -count=1 -v -timeout 0 -run '^TestSoak$$' .

# The hot paths: all of them would take longer than the rest of a short run.
BENCH_SHORT := ./internal/selection ./internal/events ./internal/wire ./internal/dispatch
# The load tools run in the folder bench: name a FILE by its full path. A short run writes into .dev/bench.
.PHONY: bench
bench: deps-bench ## everything, short: beside peers, core, locks, registry, lists, SDKs, console, micro-benchmarks of the hot paths, into .dev/bench
	@mkdir -p .dev/bench
	$(GO) run -C bench ./peers/run -short $(BENCH_PEERS_ARGS)
	$(GO) run -C bench ./core -short $(BENCH_CORE_ARGS)
	$(GO) run -C bench ./locks -short $(BENCH_LOCKS_ARGS)
	$(GO) run -C bench ./registry -short $(BENCH_REGISTRY_ARGS)
	$(GO) run -C bench ./lists -short $(BENCH_LISTS_ARGS)
	$(GO) run -C bench ./sdk -short $(BENCH_SDK_ARGS)
	$(GO) run -C bench ./console -short $(BENCH_CONSOLE_ARGS)
	@$(MAKE) bench-micro BENCH_ARGS='-benchmem -benchtime 20x' BENCH_PACKAGES='$(BENCH_SHORT)' | tee .dev/bench/micro.txt

.PHONY: bench-full
bench-full: deps-bench ## everything, long, into bench/RESULTS.md (hours, quiet machine)
	@mkdir -p .dev/bench
	$(GO) run -C bench ./peers/run $(BENCH_PEERS_ARGS)
	$(GO) run -C bench ./e2e $(BENCH_E2E_ARGS)
	$(GO) run -C bench ./core $(BENCH_CORE_ARGS)
	$(GO) run -C bench ./locks $(BENCH_LOCKS_ARGS)
	$(GO) run -C bench ./registry $(BENCH_REGISTRY_ARGS)
	$(GO) run -C bench ./lists -huge $(BENCH_LISTS_ARGS)
	$(GO) run -C bench ./sdk $(BENCH_SDK_ARGS)
	$(GO) run -C bench ./console $(BENCH_CONSOLE_ARGS)
	@$(MAKE) bench-micro BENCH_COUNT=10 | tee .dev/bench/micro.txt

.PHONY: bench-peers
bench-peers: deps-bench ## beside asynq, machinery, BullMQ, NATS JetStream and River, into bench/RESULTS.md (BENCH_PEERS_ARGS='-parts peers,scale')
	$(GO) run -C bench ./peers/run $(BENCH_PEERS_ARGS)

.PHONY: bench-fleet
bench-fleet: deps-redis ## fleets of 2 to 1,000 nodes beside asynq and NATS JetStream, into bench/RESULTS.md (BENCH_PEERS_ARGS='-short -before main')
	$(GO) run -C bench ./peers/run -parts fleet $(BENCH_PEERS_ARGS)

# What cannot be installed is left out, and the report says so.
.PHONY: deps-bench
deps-bench: deps-redis
	@scripts/deps.sh node postgres python celery || echo "make bench: going on without the peers that need them" >&2

.PHONY: bench-micro
bench-micro: deps-redis ## micro-benchmarks (BENCH=pattern, BENCH_COUNT=10 for benchstat)
	$(GO) test -p 1 -run '^$$' -bench '$(BENCH)' -count $(BENCH_COUNT) $(BENCH_ARGS) $(BENCH_PACKAGES)

.PHONY: bench-compare
bench-compare: deps-redis ## micro-benchmarks against another commit, ten runs of each in turns (BASE=main BENCH=pattern)
	@scripts/bench-compare.sh "$(BASE)" '$(BENCH)' $(if $(filter-out 1,$(BENCH_COUNT)),$(BENCH_COUNT),10)

# Each side is built as go build does it (PGO=off, BASE_PGO=off: without profiles).
.PHONY: bench-gate
bench-gate: deps-redis ## load end to end against another commit, ten runs of each in turns (BASE=main ROUNDS=10 WINDOW=3s BENCH_GATE_ARGS='-limit 0.95')
	$(GO) run -C bench ./gate -base '$(BASE)' $(ROUNDS:%=-rounds %) $(WINDOW:%=-window %) $(PGO:%=-pgo %) $(BASE_PGO:%=-base-pgo %) $(BENCH_GATE_ARGS)

.PHONY: bench-e2e
bench-e2e: deps-redis ## load end to end, which rewrites bench/RESULTS.md (BENCH_E2E_ARGS)
	$(GO) run -C bench ./e2e $(BENCH_E2E_ARGS)

.PHONY: bench-core
bench-core: deps-redis ## what the core promises, measured, into bench/RESULTS.md (BENCH_CORE_ARGS='-parts choose')
	$(GO) run -C bench ./core $(BENCH_CORE_ARGS)

.PHONY: bench-locks
bench-locks: deps-redis ## the lock beside rueidislock, redislock and redsync, into bench/RESULTS.md (BENCH_LOCKS_ARGS='-parts keys,one')
	$(GO) run -C bench ./locks $(BENCH_LOCKS_ARGS)

.PHONY: bench-registry
bench-registry: deps-redis ## the registry beside etcd and patterns on Redis, into bench/RESULTS.md (BENCH_REGISTRY_ARGS='-parts write,push')
	$(GO) run -C bench ./registry $(BENCH_REGISTRY_ARGS)

.PHONY: bench-lists
bench-lists: deps-redis ## lists of 10 million ids beside a hash, a set, Bloom filters and maps, into bench/RESULTS.md (BENCH_LISTS_ARGS='-parts ask,check')
	$(GO) run -C bench ./lists $(BENCH_LISTS_ARGS)

.PHONY: bench-sdk
bench-sdk: deps-redis ## the Python and TypeScript SDKs beside Go's, Celery and BullMQ, into bench/RESULTS.md (BENCH_SDK_ARGS='-parts worker,client')
	@scripts/deps.sh node python celery || echo "make bench-sdk: going on without the parts that need them" >&2
	$(GO) run -C bench ./sdk $(BENCH_SDK_ARGS)

.PHONY: bench-console
bench-console: deps-redis ## the console in Chromium and what viewers cost, into bench/RESULTS.md; fails if a target is missed (BENCH_CONSOLE_ARGS='-parts load')
	@scripts/deps.sh chromium || echo "make bench-console: going on without the parts that need it" >&2
	$(GO) run -C bench ./console $(BENCH_CONSOLE_ARGS)

.PHONY: bench-sim
bench-sim: ## simulate large fleets, into bench/RESULTS.md (BENCH_SIM_ARGS='-trace FILE -nodes FILE', both CSV)
	$(GO) run -C bench ./sim $(BENCH_SIM_ARGS)

.PHONY: bench-report
bench-report: ## write bench/RESULTS.md from the JSON files in bench/results
	$(GO) run -C bench ./report

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	@for module in . bench; do (cd $$module; \
	$(GO) list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | \
	{ xargs grep -HoE '^func Fuzz[A-Za-z0-9_]+' || true; } | while IFS=: read -r file func; do \
		echo "== $$(dirname $$file) $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "$$(dirname $$file)" </dev/null; \
	done); done

.PHONY: lint
lint: ## golangci-lint, in the Go modules that users get (the first run builds it: about 2 minutes)
	@found=0; git grep --cached -l -P '^\x7fELF' || found=$$?; \
	case $$found in 0) echo "programs are not for git" >&2; exit 1 ;; 1) ;; *) echo "git grep failed: are programs in git?" >&2; exit 1 ;; esac
	$(FEW_GCS) $(TOOL) golangci-lint run ./...
	cd $(OPENFEATURE) && $(FEW_GCS) $(TOOL) golangci-lint run ./...

.PHONY: lint-test
lint-test: ## golangci-lint, in the modules of benchmarks and of tests of whole programs (not part of CI)
	@for module in bench $(DOCKER_MODULE) $(E2E) $(CONSOLE_TEST) $(FAULTS) $(CONFORMANCE); do (cd $$module && $(TOOL) golangci-lint run ./...) || exit 1; done

.PHONY: lint-deploy
lint-deploy: ## golangci-lint, in the modules of deploy-test (not part of CI: their libraries take minutes to build)
	@for module in $(BOARDS) $(RELEASE) $(COMPOSE_TEST) $(HELM); do (cd $$module && $(TOOL) golangci-lint run ./...) || exit 1; done

.PHONY: lint-peers
lint-peers: ## golangci-lint, in the modules of the peers of the benchmarks
	@for peer in $(PEERS); do (cd $$peer && $(GO) vet ./... && $(TOOL) golangci-lint run ./...) || exit 1; done

.PHONY: fmt
fmt: ## format the Go code as lint wants it
	$(TOOL) golangci-lint fmt ./...
	cd bench && $(TOOL) golangci-lint fmt ./...
	cd $(DOCKER_MODULE) && $(TOOL) golangci-lint fmt ./...
	cd $(E2E) && $(TOOL) golangci-lint fmt ./...
	cd $(CONSOLE_TEST) && $(TOOL) golangci-lint fmt ./...
	cd $(FAULTS) && $(TOOL) golangci-lint fmt ./...
	cd $(CONFORMANCE) && $(TOOL) golangci-lint fmt ./...
	cd $(BOARDS) && $(TOOL) golangci-lint fmt ./...
	cd $(RELEASE) && $(TOOL) golangci-lint fmt ./...
	cd $(COMPOSE_TEST) && $(TOOL) golangci-lint fmt ./...
	cd $(OPENFEATURE) && $(TOOL) golangci-lint fmt ./...
	@for peer in $(PEERS); do (cd $$peer && $(TOOL) golangci-lint fmt ./...) || exit 1; done

.PHONY: tidy
tidy: ## go mod tidy, in each Go module
	$(GO) mod tidy
	cd bench && $(GO) mod tidy
	cd $(DOCKER_MODULE) && $(GO) mod tidy
	cd $(E2E) && $(GO) mod tidy
	cd $(CONSOLE_TEST) && $(GO) mod tidy
	cd $(FAULTS) && $(GO) mod tidy
	cd $(CONFORMANCE) && $(GO) mod tidy
	cd $(BOARDS) && $(GO) mod tidy
	cd $(HELM) && $(GO) mod tidy
	cd $(RELEASE) && $(GO) mod tidy
	cd $(COMPOSE_TEST) && $(GO) mod tidy
	cd $(OPENFEATURE) && $(GO) mod tidy
	@for peer in $(PEERS); do (cd $$peer && $(GO) mod tidy) || exit 1; done
	cd tools && $(GO) mod tidy

.PHONY: demo
demo: build deps-speech ## the speech example (needs espeak-ng and sox, which it installs)
	$(GO) run ./examples/speech $(DEMO_ARGS)

.PHONY: clean
clean: ## remove what the other targets made
	@scripts/dockerd.sh stop
	rm -rf bin dist .dev console/node_modules $(E2E)/wsclient/node_modules bench/peers/bullmq/node_modules
