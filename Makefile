# Everything that Coppice needs is built or fetched from here; Go is all that has
# to be there before.
.DEFAULT_GOAL := help
SHELL := /bin/bash
GO ?= go
export GOTOOLCHAIN := local
KEEP ?=

.PHONY: help build sandbox demo test check generate update bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/coppice
	@$(GO) build -o bin/coppice ./cmd/coppice

sandbox: ## build bin/sandbox: a control plane, an EC2 and a Git server in one process
	@bash cmd/sandbox/build.sh bin/sandbox

demo: build sandbox ## show the whole loop, from a commit to a node and back (KEEP=1 leaves it running)
	@exec bin/sandbox demo --coppice bin/coppice $(if $(KEEP),--keep)

test: build sandbox ## run all tests, those against a real API server too
	COPPICE_REQUIRE_SANDBOX=1 $(GO) test ./...
	$(GO) -C cmd/sandbox test ./...

check: ## formatting, vet, and generated files and goldens that match the tree
	@bash .ci/check

generate: ## derive deep copies, CRDs and CUE from the Go types
	$(GO) generate ./schemas

update: generate ## rewrite goldens from what the code does now
	UPDATE=1 $(GO) test ./... >/dev/null || UPDATE=1 $(GO) test ./...

bench: ## run the benchmarks of the packing core and of rendering
	$(GO) test -run '^$$' -bench . -benchmem ./internal/pack ./render

clean: ## remove what was built
	rm -rf bin
