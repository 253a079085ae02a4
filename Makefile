# One place for every command: `make help` lists them. Everything here also works as a plain cargo command.

SHELL := /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
SEEDS ?= 2000
NAME ?=
ARGS ?=

# Where cargo builds: CARGO_TARGET_DIR, build.target-dir, or here.
FOLDER = $(shell $(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

# The static binary of this machine's processor, see targets/README.md.
MUSL := $(shell uname -m)-unknown-linux-musl
fuzz: TARGET ?= journal
release reproducible: TARGET ?= $(MUSL)
SECONDS ?= 60

.PHONY: help build static release release-all reproducible source run test test-http1 test-cross test-vm test-fleet test-nfd test-rotation test-crio test-services test-alerts test-recipes upgrade \
    packages lint deny fmt cluster bench sim mutants fuzz board install clean

help: ## What each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## The release binary: target/release/nodepulse
	$(CARGO) build --release --locked

static: ## The smallest one: target/ARCH-unknown-linux-musl/release/nodepulse (rustup target add ARCH-unknown-linux-musl)
	@./targets/release $(MUSL)

release: ## The static binary for a board: make release TARGET=aarch64-unknown-linux-musl (targets/README.md lists them)
	@./targets/release $(TARGET)

release-all: ## The static binaries for all boards, the same bytes on every machine (makes their compiler the first time)
	@./targets/release --hermetic

reproducible: ## Build a target in another folder from nothing and compare: make reproducible TARGET=...
	@./targets/reproducible $(TARGET)

source: ## The source tarball with all crates, and the recipes for Yocto, Buildroot and OpenWrt beside it: target/source
	@./targets/source

run: ## Run the agent: against the cluster of KUBECONFIG, or an embedded model API server
	@if [ -n "$$KUBECONFIG" ]; then \
	    $(CARGO) build --locked && exec "$(FOLDER)/debug/nodepulse" run --kubeconfig "$$KUBECONFIG" $(ARGS); \
	else \
	    $(CARGO) build --locked --bin nodepulse --example model_server && \
	    exec "$(FOLDER)/debug/examples/model_server" --agent "$(FOLDER)/debug/nodepulse" $(ARGS); \
	fi

test: ## Everything: units, boards, simulation, hostile servers, and the real cluster (builds it the first time: 6 min)
	./tests/run $(ARGS)

test-http1: ## The suites on the real cluster once more, every agent with HTTP/1.1 alone (11 min)
	@for suite in cluster outage joining; do ALPN_PROTOCOL=http/1.1 ./tests/run --test $$suite $(ARGS) || exit; done

test-cross: ## Each binary that ships, on its processor emulated: what it says, and that it becomes a Node
	@CROSS=1 ./tests/run --test cross $(ARGS)

test-vm: ## Whole boards, emulated with kernels of their own: their clock, their link, their power (minutes each)
	@VM=1 ./tests/run --test vm $(ARGS)

test-fleet: ## Two hundred boards with one token, switched on together: Ready, and what each cost
	@FLEET=1 ./tests/run --test fleet -- --nocapture $(ARGS)

test-crio: ## What is held against a real kubelet and its containerd, with a real CRI-O in the place of that (Go; three minutes the first time)
	@CRIO=1 ./tests/run --test kubelet -- runtime $(ARGS)

test-nfd: ## Our labels of this machine and of every board beside those of node-feature-discovery's own worker (root, Go; two minutes the first time)
	@NFD=1 ./tests/run --test nfd $(ARGS)

test-rotation: ## Certificates of 20 s follow each other for ten minutes on the real cluster: no gap between renewals of the Lease
	@CERTIFICATE_SECONDS=20 ROTATION_SECONDS=600 ./tests/run --test joining -- certificates_of_seconds --nocapture $(ARGS)

upgrade: ## An earlier release lives on the real cluster, then this program goes on from what it left: make upgrade FROM=PROGRAM
	@test -x "$(FROM)" || { echo 'usage: make upgrade FROM=PROGRAM (KEEP=tests/live/earlier keeps what it leaves)' >&2; exit 64; }
	@UPGRADE_FROM="$(abspath $(FROM))" UPGRADE_KEEP="$(KEEP)" ./tests/run --test cluster -- earlier_version

test-recipes: ## Each of those recipes, offline, as far as a program that runs (10 min; Yocto needs bitbake: PYTHON=...)
	@./tests/recipes/run $(ARGS)

test-services: ## Each service file under its service manager, in namespaces of their own (root, mmdebstrap): ARGS='systemd openrc'
	./tests/services/run $(ARGS)

test-alerts: ## The alert rules for a fleet, by the real promtool, and the dashboard, by Grafana's own types (Go, npm; five minutes the first time)
	./tests/alerts/run

lint: ## Format, clippy, shell syntax: what CI refuses
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --test cross --test vm --test fleet --test nfd -- -D warnings
	for script in .ci/run docs/screenshot tests/run tests/boards/capture tests/recipes/run tests/vm/init tests/vm/programs targets/build targets/musl \
	    targets/kubernetes/enroll targets/kubernetes/names-policy targets/kubernetes/kubectl-nodepulse targets/openrc/nodepulse targets/procd/nodepulse targets/sysv/nodepulse \
	    targets/packages/install.sh; do sh -n "$$script" || exit 1; done
	for script in scenario procd systemd openrc sysv busybox readonly deb rpm apk ipk; do sh -n tests/services/$$script || exit 1; done
	for script in run debian enter; do bash -n tests/services/$$script || exit 1; done
	for script in tests/alerts/run tests/nfd/build tests/cluster/build tests/boxes/parts tests/vm/parts targets/toolchain targets/release targets/reproducible targets/source \
	    targets/try-cross tests/mutants targets/packages/build targets/packages/sign targets/advisories; do bash -n $$script || exit 1; done

deny: ## What is linked in, by cargo-deny and the advisories of today: make deny, or ARGS='bans licenses sources' without a network
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo 'first: cargo install cargo-deny --locked' >&2; exit 69; }
	$(CARGO) deny --locked check $(ARGS)

packages: ## .deb, .rpm, .apk, .ipk, archives, SBOM and SHA256SUMS for all boards: target/packages (Go, cargo-cyclonedx)
	@./targets/packages/build $(ARGS)

fmt: ## Format the source
	$(CARGO) fmt

cluster: ## Start the real test cluster, print its kubeconfig, keep it until Ctrl-C
	./tests/cluster/build
	$(CARGO) run --locked --quiet --example cluster

bench: ## Sizes, memory, wake-ups and bytes beside their budgets
	./tests/cluster/build
	$(CARGO) bench --locked --bench budgets -- $(ARGS)

sim: ## Simulated worlds: make sim SEEDS=1000000 (FROM=2000: from that seed on), or SEED=7 to replay one with its trace
	SEEDS=$(SEEDS) FROM=$(FROM) SEED=$(SEED) $(CARGO) test --locked --profile sim --test sim -- --nocapture what_must_hold

mutants: ## Plant faults in the core and list those that no test notices: hours, or ARGS='--today', ARGS='--shard 3/20'
	./tests/mutants $(ARGS)

fuzz: ## Fuzz a parser from its corpus on: make fuzz TARGET=journal (or settings, kubeconfig, reply, certificate, identity, hpack, http2_frames, watch, dbus, kernel_log, cri, features, device_plugins) SECONDS=60
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo 'first: cargo install cargo-fuzz (and a C++ compiler)' >&2; exit 69; }
	@mkdir -p fuzz/found/$(TARGET)
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(TARGET) fuzz/found/$(TARGET) fuzz/corpus/$(TARGET) -- \
	    -max_total_time=$(SECONDS) -max_len=70000

board: ## Capture this machine as a test board: make board NAME=my-board
	@test -n "$(NAME)" || { echo 'usage: make board NAME=my-board' >&2; exit 64; }
	./tests/boards/capture "$(NAME)"

install: build ## Install binary, man page, completions and the cluster's files under PREFIX (default /usr/local), below DESTDIR
	install -Dm755 "$(FOLDER)/release/nodepulse" "$(DESTDIR)$(PREFIX)/bin/nodepulse"
	install -d "$(DESTDIR)$(PREFIX)/share/nodepulse/kubernetes"
	install -m644 targets/kubernetes/*.* "$(DESTDIR)$(PREFIX)/share/nodepulse/kubernetes"
	install -m755 targets/kubernetes/enroll targets/kubernetes/names-policy targets/kubernetes/kubectl-nodepulse \
	    "$(DESTDIR)$(PREFIX)/share/nodepulse/kubernetes"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man8" "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
	    "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	install -m644 targets/nodepulse.8 "$(DESTDIR)$(PREFIX)/share/man/man8/nodepulse.8"
	install -m644 targets/completions/nodepulse.bash "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/nodepulse"
	install -m644 targets/completions/_nodepulse "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_nodepulse"
	install -m644 targets/completions/nodepulse.fish "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/nodepulse.fish"

clean: ## Remove what was built here (the cluster's cache is outside the tree)
	$(CARGO) clean
