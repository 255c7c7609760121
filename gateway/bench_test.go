package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/internal/speed"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// These are numbers of docs/code-mode.md, "Speed": the whole way of a call, over
// HTTP on both sides, with the guard and the audit. Client, portal and servers
// share this machine, so each has a part of it only.

func BenchmarkMachine(b *testing.B) { speed.ReportMachine(b) }

// bench starts a portal before servers with so many tools in all, which answer
// at once. The first is s with the tool look; called gets the time of each call.
func bench(b *testing.B, tools int) (p *portal, first *upstreamtest.Server, called chan time.Time) {
	b.Helper()
	called = make(chan time.Time, 1)
	yaml := "code: {max_calls: 1000}\nservers:\n"
	for i, n := 0, 0; i == 0 || n < tools; i++ {
		list := []json.RawMessage{}
		for range min(300, tools-n) {
			list = append(list, toolDef(fmt.Sprintf("the_tool_number_%d", n), readOnly))
			n++
		}
		id := fmt.Sprintf("server-%d", i)
		if i == 0 {
			id, list = "s", append(list, toolDef("look", readOnly))
		}
		up := upstreamtest.New(b, upstreamtest.Options{Era: upstreamtest.Modern, Tools: list, Handle: func(c *upstreamtest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			select {
			case called <- time.Now():
			default:
			}
			c.Result(`{"resultType":"complete","content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}`)
			return true
		}})
		if i == 0 {
			first = up
		}
		yaml += "  " + id + ":\n    url: " + up.URL + "\n    trust_annotations: true\n"
	}
	return start(b, yaml, nil), first, called
}

// quick calls a tool without what the test client checks of each answer.
func quick(c *client, tool, arguments string) answer {
	return c.do("tools/call", `"name":"`+tool+`","arguments":`+arguments, nil)
}

func script(c *client, code string) answer {
	return quick(c, "portal_execute", `{"code":`+string(wire.Quote(code))+`}`)
}

func laps(b *testing.B, want string, once func() answer) (l speed.Laps) {
	b.Helper()
	for i := range 20 {
		if a := once(); a.Error != nil || a.Err != nil || a.Result.IsError || !strings.Contains(a.Raw, want) {
			b.Fatalf("call %d: %v %.600s", i, a.Err, a.Raw)
		}
	}
	for b.Loop() {
		began := time.Now()
		a := once()
		l = append(l, time.Since(began))
		if a.Err != nil || !strings.Contains(a.Raw, want) {
			b.Fatalf("%v %.600s", a.Err, a.Raw)
		}
	}
	return l
}

// BenchmarkCall is tools/call at the server itself and through the portal.
func BenchmarkCall(b *testing.B) {
	p, up, _ := bench(b, 0)
	at := &portal{t: b, url: strings.TrimSuffix(up.URL, "/mcp")}
	var direct, through speed.Laps
	b.Run("direct", func(b *testing.B) {
		c := at.client(modern, "", noCaps, nil)
		direct = laps(b, `"n":1`, func() answer { return quick(c, "look", `{"id":"1"}`) })
		speed.Report(b, direct, 0)
	})
	for _, e := range []era{modern, legacy} {
		b.Run("portal/"+string(e), func(b *testing.B) {
			c := p.client(e, "", noCaps, nil)
			through = laps(b, `"n":1`, func() answer { return quick(c, "s_look", `{"id":"1"}`) })
			speed.Report(b, through, 0)
			if direct != nil {
				b.ReportMetric(float64(through.At(.5))/float64(direct.At(.5)), "x-direct")
			}
		})
	}
}

// BenchmarkCode is code that calls tools.
func BenchmarkCode(b *testing.B) {
	for _, tools := range []int{0, 3000} {
		b.Run(fmt.Sprintf("%d_tools", tools+1), func(b *testing.B) {
			p, _, called := bench(b, tools)
			c := p.client(modern, twoTools, noCaps, nil)
			b.Run("until_first_call", func(b *testing.B) {
				var l speed.Laps
				once := func() {
					select {
					case <-called:
					default:
					}
					began := time.Now()
					script(c, "return await s.look({id:'1'})")
					l = append(l, (<-called).Sub(began))
				}
				once()
				for l = nil; b.Loop(); {
					once()
				}
				speed.Report(b, l, 0)
			})
			b.Run("one_call", func(b *testing.B) {
				speed.Report(b, laps(b, `"ok"`, func() answer { return script(c, "return await s.look({id:'1'})") }), 0)
			})
			b.Run("each_of_100_calls", func(b *testing.B) {
				l := laps(b, "100", func() answer {
					return script(c, "let n = 0; for (let i = 0; i < 100; i++) n += (await s.look({id:'1'})).n; return n")
				})
				for i := range l {
					l[i] /= 100
				}
				speed.Report(b, l, 0)
			})
			b.Run("1000_calls_at_once", func(b *testing.B) {
				speed.Report(b, laps(b, "1000", func() answer {
					return script(c, "return (await Promise.all(Array.from({length: 1000}, (_, i) => s.look({id:'1'})))).length")
				}), 0)
			})
		})
	}
}

// BenchmarkSearch is portal_query_tools over 3,000 tools.
func BenchmarkSearch(b *testing.B) {
	p, _, _ := bench(b, 3000)
	c := p.client(modern, twoTools, noCaps, nil)
	speed.Report(b, laps(b, "the_tool_number", func() answer {
		return quick(c, "portal_query_tools", `{"query":"the tool with number 1234"}`)
	}), 0)
}
