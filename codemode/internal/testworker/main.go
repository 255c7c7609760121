// Command testworker is the smallest program that can be a sandbox worker. The
// tests build it with CGO_ENABLED=0, so that every layer of the sandbox holds
// even while they themselves run under the race detector, which needs cgo.
package main

import (
	"fmt"
	"os"

	"github.com/mcp-portal/mcp-portal/codemode"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == codemode.WorkerCommand {
		os.Exit(codemode.WorkerMain())
	}
	fmt.Fprintln(os.Stderr, "testworker only runs as a sandbox worker")
	os.Exit(2)
}
