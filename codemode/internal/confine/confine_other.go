//go:build !linux || (!amd64 && !arm64)

package confine

import (
	"errors"
	"runtime"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Apply reports that this platform offers the process boundary only.
func Apply(Options) []proto.Layer {
	err := errors.New("not available on " + runtime.GOOS + "/" + runtime.GOARCH + ": process isolation and watchdog only")
	var out []proto.Layer
	for _, name := range Layers() {
		out = append(out, layer(name, err))
	}
	return out
}
