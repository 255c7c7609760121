package worker

import "github.com/mcp-portal/mcp-portal/codemode/internal/proto"

func runMessage(code string) *proto.RunMsg {
	return &proto.RunMsg{Code: code, CPUMillis: 60_000, WallMillis: 60_000, MemoryMB: 1 << 20, MaxCalls: 10, MaxArgs: 1 << 20, MaxLogs: 1 << 10, MaxValue: 1 << 20, MaxBlocks: 1 << 20}
}
