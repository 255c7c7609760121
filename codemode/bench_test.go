package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

func benchRun(b *testing.B, code string, host Host, ts []Tool, change func(*config.Code)) {
	b.Helper()
	p := testPool(b, change)
	run(b, p, host, code, ts...)
	b.ReportAllocs()
	for b.Loop() {
		o, err := p.Run(context.Background(), Request{Owner: "u", Code: code, Tools: ts}, host)
		if err != nil || o.Error != nil {
			b.Fatal(err, o.Error)
		}
	}
}

// BenchmarkTrivialRun is a whole run of one expression on a reused worker.
func BenchmarkTrivialRun(b *testing.B) { benchRun(b, "1 + 1", nil, nil, nil) }

// BenchmarkTypeScriptRun goes through esbuild.
func BenchmarkTypeScriptRun(b *testing.B) {
	benchRun(b, "const x: number = 1; return x + 1", nil, nil, nil)
}

// BenchmarkManyTools is a trivial run that could call 2,600 tools.
func BenchmarkManyTools(b *testing.B) {
	var names []string
	for i := range 2600 {
		names = append(names, fmt.Sprintf("server%d_tool_number_%d", i%40, i))
	}
	benchRun(b, "1 + 1", nil, tools(names...), nil)
}

// BenchmarkFreshWorker pays for a process with every run.
func BenchmarkFreshWorker(b *testing.B) {
	benchRun(b, "1 + 1", nil, nil, func(c *config.Code) { c.Reuse = "never" })
}

// BenchmarkFirstLine is the time to the script's first call.
func BenchmarkFirstLine(b *testing.B) {
	p := testPool(b, nil)
	at := make(chan struct{}, 1)
	host := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) {
		at <- struct{}{}
		return json.RawMessage(structured("1")), nil
	}}
	ts := tools("s_t")
	for b.Loop() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(b, p, host, "await s.t()", ts...)
		}()
		<-at
		b.StopTimer()
		<-done
		b.StartTimer()
	}
}

// BenchmarkSequentialCalls makes 100 calls one after another per iteration.
func BenchmarkSequentialCalls(b *testing.B) {
	benchRun(b, "for (let i = 0; i < 100; i++) await s.t({i})", answers(map[string]string{"s_t": structured(`{"ok":true}`)}), tools("s_t"), nil)
}

// BenchmarkParallelCalls makes 1,000 calls at once per iteration.
func BenchmarkParallelCalls(b *testing.B) {
	benchRun(b, "(await Promise.all(Array.from({length: 1000}, (_, i) => s.t({i})))).length", answers(map[string]string{"s_t": structured(`{"ok":true}`)}), tools("s_t"), func(c *config.Code) { c.MaxCalls = 1000 })
}

// BenchmarkBigResult brings one megabyte of records into a script.
func BenchmarkBigResult(b *testing.B) {
	rows := strings.TrimSuffix(strings.Repeat(`{"id":48213,"zone":"example.com","type":"A","content":"198.51.100.7","ttl":300,"proxied":false},`, 10_000), ",")
	benchRun(b, "(await s.t()).length", answers(map[string]string{"s_t": structured("[" + rows + "]")}), tools("s_t"), nil)
}

// BenchmarkShape cuts a megabyte of records to 6,000 tokens.
func BenchmarkShape(b *testing.B) {
	rows := "[" + strings.TrimSuffix(strings.Repeat(`{"id":48213,"zone":"example.com","type":"A","content":"198.51.100.7","ttl":300},`, 12_000), ",") + "]"
	b.SetBytes(int64(len(rows)))
	for b.Loop() {
		Shape(json.RawMessage(rows), 6000)
	}
}
