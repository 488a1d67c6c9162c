# Tidemark's targets. `make` lists them.

.DEFAULT_GOAL := help
.PHONY: help build demo run test race lint fuzz bench docs clean

GO ?= go
FUZZTIME ?= 10s
GOLANGCI_VERSION := v2.15.0

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/tidemark
	$(GO) build -o bin/tidemark ./cmd/tidemark

demo: ## run the walk-through on a store in a temporary folder
	$(GO) run ./cmd/tidemark demo

run: build ## run a script: make run FILE=script.tide
	./bin/tidemark run $(FILE)

test: build ## run every test
	$(GO) vet ./...
	$(GO) test -timeout 20m ./...

race: ## run the tests under the race detector, but those of other processes (needs a C compiler)
	$(GO) test -race -short -timeout 20m $$($(GO) list ./... | grep -v '/test/') ./test/client

lint: ## run golangci-lint, which is built on first use
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) run ./...

fuzz: ## fuzz every parser and decoder for FUZZTIME each
	@set -e; for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
	  done; done

bench: ## measure Tidemark beside its references, in one run
	$(GO) -C bench run .

docs: ## serve the packages' documentation
	$(GO) doc -http .

clean: ## remove what the targets built
	rm -rf bin
