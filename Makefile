# Two commands are enough: `make run` shows it at work, `make test` proves it. Both install what is missing.
.DEFAULT_GOAL := help
.PHONY: help setup build release run demo test unit conformance conformance-release lint fmt docs bench sim e2e

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

setup: ## Install what is missing (git-ignored, under .cache/)
	@scripts/setup

build: ## Build everything once, tests included
	cargo build --locked --workspace --all-targets

release: ## Build the release binaries
	cargo build --locked --release --workspace --bins

run: ## Build, start waybill standalone, and show a client at work
	@scripts/demo

demo: run ## The same as run

test: ## Lint, every test, the published clients, the demonstration
	@scripts/test

unit: setup ## The Rust tests only
	@scripts/test build rust

conformance: setup ## The published clients against Waybill
	@scripts/test build conformance

conformance-release: setup release ## The same against the release binaries
	@WAYBILL_BIN_DIR=$(CURDIR)/target/release scripts/conformance

e2e: setup ## Waybill on a real Kubernetes, brought up for it (root; the first time 12 minutes more)
	@scripts/test build e2e

sim: ## A thousand runs of broker and sidecar under simulated time, network and disk
	@scripts/sim

lint: setup ## Format, clippy, licences, docs, and what no tool checks
	@scripts/lint

fmt: ## Format the Rust code
	cargo fmt --all

docs: setup ## Write the generated pages under docs/, crds/ and charts/ again
	WAYBILL_WRITE_DOCS=1 cargo test --locked -p waybill generated_docs
	cargo run --locked -q -p waybill-sidecar -- --print-config-docs > .cache/page && mv .cache/page docs/configuration-sidecar.md
	cargo run --locked -q -p waybill-operator -- crds && cp crds/*.yaml charts/waybill/crds/
	charts/dashboards.py && .cache/tools/bin/python charts/readme.py

bench: ## Measure against Apache RocketMQ and the disk (release build; takes a while)
	@bench/run
