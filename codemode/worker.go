package codemode

import (
	"os"

	"github.com/mcp-portal/mcp-portal/codemode/internal/worker"
)

// WorkerCommand is the first argument that makes the program a sandbox worker.
const WorkerCommand = "sandbox-worker"

// WorkerMain is the whole life of a sandbox worker and returns its exit code.
// main calls it before anything else when os.Args[1] is WorkerCommand: a worker
// reads no configuration, opens nothing and logs nothing.
func WorkerMain() int { return worker.Main(os.Args[2:]) }
