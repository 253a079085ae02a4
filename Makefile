# One place for every command: `make help` lists them. Everything here also works as a plain cargo command.

SHELL := /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
SEEDS ?= 2000
NAME ?=
ARGS ?=
COMMA := ,

# Where cargo builds: CARGO_TARGET_DIR, build.target-dir, or here.
TARGET = $(shell $(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

# The static binary: for musl, and where rustup has the source of the standard library (rustup component add rust-src),
# with one that is built for size and without backtraces, and without paths of the machine it was built on.
MUSL := $(shell uname -m)-unknown-linux-musl
STD := $(wildcard $(shell rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/std)
STD_FLAGS := $(if $(STD),-Zbuild-std=std$(COMMA)panic_abort -Zbuild-std-features=optimize_for_size \
    -Ztrim-paths --config 'profile.release.trim-paths="all"')

TARGET ?= journal
SECONDS ?= 60

.PHONY: help build static run test lint fmt cluster bench sim fuzz board install clean

help: ## What each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## The release binary: target/release/nodepulse
	$(CARGO) build --release --locked

static: ## The smallest one: target/ARCH-unknown-linux-musl/release/nodepulse (rustup target add ARCH-unknown-linux-musl)
	$(if $(STD),RUSTC_BOOTSTRAP=1) CC_$(subst -,_,$(MUSL))=$${CC:-cc} \
	    $(CARGO) build --release --locked --bin nodepulse --target $(MUSL) --config .cargo/small.toml $(STD_FLAGS)

run: ## Run the agent: against the cluster of KUBECONFIG, or an embedded model API server
	@if [ -n "$$KUBECONFIG" ]; then \
	    $(CARGO) build --locked && exec "$(TARGET)/debug/nodepulse" run --kubeconfig "$$KUBECONFIG" $(ARGS); \
	else \
	    $(CARGO) build --locked --bin nodepulse --example model_server && \
	    exec "$(TARGET)/debug/examples/model_server" --agent "$(TARGET)/debug/nodepulse" $(ARGS); \
	fi

test: ## Everything: units, boards, simulation, bad replies, and the real cluster (builds it the first time: 6 min)
	./tests/run $(ARGS)

lint: ## Format, clippy, shell syntax: what CI refuses
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	for script in .ci/run tests/run tests/boards/capture; do sh -n "$$script" || exit 1; done
	bash -n tests/cluster/build

fmt: ## Format the source
	$(CARGO) fmt

cluster: ## Start the real test cluster, print its kubeconfig, keep it until Ctrl-C
	./tests/cluster/build
	$(CARGO) run --locked --quiet --example cluster

bench: ## Sizes, memory, wake-ups and bytes beside their budgets
	./tests/cluster/build
	$(CARGO) bench --locked --bench budgets -- $(ARGS)

sim: ## Simulated worlds: make sim SEEDS=1000000, or SEED=7 to replay one with its trace
	SEEDS=$(SEEDS) SEED=$(SEED) $(CARGO) test --locked --profile sim --test sim -- --nocapture what_must_hold

fuzz: ## Fuzz a parser: make fuzz TARGET=journal (or settings, kubeconfig, reply) SECONDS=60
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo 'first: cargo install cargo-fuzz (and a C++ compiler)' >&2; exit 69; }
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(TARGET) -- -max_total_time=$(SECONDS) -max_len=70000

board: ## Capture this machine as a test board: make board NAME=my-board
	@test -n "$(NAME)" || { echo 'usage: make board NAME=my-board' >&2; exit 64; }
	./tests/boards/capture "$(NAME)"

install: build ## Install binary, man page and completions under PREFIX (default /usr/local), below DESTDIR
	install -Dm755 "$(TARGET)/release/nodepulse" "$(DESTDIR)$(PREFIX)/bin/nodepulse"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man8" "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
	    "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	"$(TARGET)/release/nodepulse" man > "$(DESTDIR)$(PREFIX)/share/man/man8/nodepulse.8"
	"$(TARGET)/release/nodepulse" completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/nodepulse"
	"$(TARGET)/release/nodepulse" completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_nodepulse"
	"$(TARGET)/release/nodepulse" completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/nodepulse.fish"

clean: ## Remove what was built here (the cluster's cache is outside the tree)
	$(CARGO) clean
