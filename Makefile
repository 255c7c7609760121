# Two commands matter: `make run` and `make test`.
GO      ?= go
BIN     := bin/mcp-portal
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The sandbox worker is this same binary; its system call filter needs a
# program without cgo.
build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN) ./cmd/mcp-portal

run: build
	./$(BIN) demo

# setup installs what the tests need: Debian packages and npm packages.
setup:
	./hack/setup

test: setup
	./hack/test

# The official conformance suite alone, with its table of results.
conformance: setup
	PATH="$$PWD/e2e/npm/node_modules/node/bin:$$PATH" $(GO) test ./e2e -count=1 -run 'TestConformance$$' -v | grep -v '^ *\(===\|---\)'

bench:
	GO="$(GO)" ./hack/bench

.PHONY: build run setup test conformance bench
