package upstreams

import (
	"context"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// BenchmarkDo is one call through a warm connection, both ends in one process.
func BenchmarkDo(b *testing.B) {
	for _, era := range eras {
		b.Run(era.String(), func(b *testing.B) {
			up := upstreamtest.New(b, upstreamtest.Options{Era: era, Handle: func(c *upstreamtest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				c.Text("ok")
				return true
			}})
			m := NewManager(context.Background(), Options{})
			defer m.Close(context.Background())
			m.Apply(map[string]config.Server{"up": {URL: up.URL}}, nil)
			if err := m.WaitReady(context.Background()); err != nil {
				b.Fatal(err)
			}
			u, _ := m.Get("up")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := u.Do(context.Background(), tool("echo", "")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
