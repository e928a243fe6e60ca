# Everything that Coppice needs is built or fetched from here; Go is all that has
# to be there before.
.DEFAULT_GOAL := help
SHELL := /bin/bash
GO ?= go
export GOTOOLCHAIN := local
KEEP ?=

# What make compare plays: SCENARIOS=a,b (all), how often, how many minutes the
# trough is watched, where the JSON goes; EQUAL_BATCH=1 gives Karpenter Coppice's
# batch window.
SCENARIOS ?=
ROUNDS ?= 3
MINUTES ?= 15
OUT ?=
EQUAL_BATCH ?=

# How far make scale grows the sandbox.
NODES ?= 1000
PODS ?= 20000

# The version that the sandbox's API server gives as its own.
KUBERNETES = $(shell $(GO) -C cmd/sandbox list -m -f '{{.Version}}' k8s.io/kubernetes)
STAMP = -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/component-base/version.gitTreeState=clean

# Modules of their own, each with its own reason: what they need, the product
# doesn't.
NESTED := cmd/sandbox schemas/difftest internal/catalogue/gen internal/ec2sim/kumo

.PHONY: help build sandbox karpenter gitea e2e-forge demo compare scale test chaos check generate update bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/coppice
	@sh cmd/build.sh cmd/coppice bin/coppice

sandbox: ## build bin/sandbox: a control plane, an EC2 and a Git server in one process
	@sh cmd/build.sh cmd/sandbox bin/sandbox -ldflags '$(STAMP)'

demo: build sandbox ## show the whole loop, from a commit to a node and back (KEEP=1 leaves it running)
	@exec bin/sandbox demo --coppice bin/coppice $(if $(KEEP),--keep)

karpenter: ## build bin/karpenter: Karpenter's AWS controller, unmodified, to compare with
	@PACKAGE=github.com/aws/karpenter-provider-aws/cmd/controller sh cmd/build.sh cmd/peer bin/karpenter

compare: build sandbox karpenter ## measure Coppice beside Karpenter (SCENARIOS, ROUNDS, MINUTES, OUT)
	@exec bin/sandbox compare --rounds $(ROUNDS) --minutes $(MINUTES) $(if $(SCENARIOS),--scenarios $(SCENARIOS)) $(if $(OUT),--out $(OUT)) $(if $(EQUAL_BATCH),--equal-batch)

scale: build sandbox ## measure the controller as nodes come at once, and at rest (NODES, PODS)
	@exec bin/sandbox scale --nodes $(NODES) --pods $(PODS)

test: build sandbox ## run all tests, those against a real API server too
	COPPICE_REQUIRE_SANDBOX=1 $(GO) test -timeout 40m ./...
	@for m in $(NESTED); do echo "$(GO) -C $$m test ./..."; $(GO) -C $$m test ./... || exit 1; done

gitea: ## build bin/gitea: the forge that pull requests are tested against
	@PACKAGE=code.gitea.io/gitea sh cmd/build.sh cmd/gitea bin/gitea -tags 'sqlite sqlite_unlock_notify'

e2e-forge: build sandbox gitea ## go through the life of a pull request on a real Gitea
	COPPICE_REQUIRE_SANDBOX=1 COPPICE_GITEA=$(CURDIR)/bin/gitea COPPICE_GITEA_FILES=$$($(GO) -C cmd/gitea list -m -f '{{.Dir}}' code.gitea.io/gitea) \
		$(GO) test -count 1 -v -run TestGitea ./reconcile

chaos: sandbox ## kill controllers 200 times at random moments (SEED=n repeats a run)
	COPPICE_REQUIRE_SANDBOX=1 COPPICE_CHAOS_KILLS=200 COPPICE_CHAOS_SEED=$(SEED) $(GO) test -timeout 2h -count 1 -v -run TestChaos ./reconcile

check: ## formatting, vet, and generated files and goldens that match the tree
	@bash .ci/check

generate: ## derive deep copies, CRDs and CUE from the Go types, and the catalogue from its sources
	$(GO) generate ./schemas ./internal/catalogue

update: generate ## rewrite goldens from what the code does now
	UPDATE=1 $(GO) test ./... || UPDATE=1 $(GO) test ./...

bench: ## run the benchmarks of the packing core and of rendering
	$(GO) test -run '^$$' -bench . -benchmem ./internal/pack ./render

clean: ## remove what was built
	rm -rf bin
