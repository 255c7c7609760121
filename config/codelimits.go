package config

import "fmt"

// memoryOfJSON is how many times its size as text a JSON value takes in the
// sandbox, as measured: 10 MB of text were 140 MB of objects.
const memoryOfJSON = 16

// bytesOfToken is the most that one estimated token of an answer stands for.
const bytesOfToken = 4

// codeBound is a limit of code that another limits: what is inside cannot be
// larger than what is around it. Where the file does not give the inner one it
// follows from the outer; where it does and is larger, the file contradicts
// itself.
type codeBound struct {
	key, outer string
	inner      func(*Config) int64
	most       func(*Config) int64
	set        func(*Config, int64)
	why        func(*Config) string // what is wrong with the inner one as it is, without the next step
}

// codeBounds are in an order in which each outer limit is settled before what
// it bounds.
func codeBounds() []codeBound {
	number := func(key, outer string, inner, most func(*Config) *int) codeBound {
		return codeBound{
			key: key, outer: outer,
			inner: func(c *Config) int64 { return int64(*inner(c)) },
			most:  func(c *Config) int64 { return int64(*most(c)) },
			set:   func(c *Config, n int64) { *inner(c) = int(n) },
			why: func(c *Config) string {
				return fmt.Sprintf("%d is more than %s (%d)", *inner(c), outer, *most(c))
			},
		}
	}
	inMemory := func(key string, inner func(*Config) *int) codeBound {
		b := number(key, "code.memory_mb", inner, func(c *Config) *int { n := c.Code.MemoryMB << 20 / memoryOfJSON; return &n })
		b.why = func(c *Config) string {
			return fmt.Sprintf("%d bytes of JSON take up to %d times as much in the sandbox, more than code.memory_mb (%d)", *inner(c), memoryOfJSON, c.Code.MemoryMB)
		}
		return b
	}
	ofMessage := func(key, outer string, inner func(*Config) *int, most func(*Config) int64) codeBound {
		b := number(key, outer, inner, nil)
		b.most = most
		b.why = func(c *Config) string {
			return fmt.Sprintf("%d is more than %s (%d), so it is never reached", *inner(c), outer, most(c))
		}
		return b
	}
	body := func(c *Config) int64 { return c.Limits.Body }
	message := func(c *Config) int64 { return c.Limits.Message }
	return []codeBound{
		number("code.workers", "code.max_workers", func(c *Config) *int { return &c.Code.Workers }, func(c *Config) *int { return &c.Code.MaxWorkers }),
		number("code.runs_per_user", "code.max_workers", func(c *Config) *int { return &c.Code.RunsPerUser }, func(c *Config) *int { return &c.Code.MaxWorkers }),
		{
			key: "code.cpu_time", outer: "code.wall_time",
			inner: func(c *Config) int64 { return int64(c.Code.CPUTime) },
			most:  func(c *Config) int64 { return int64(c.Code.WallTime) },
			set:   func(c *Config, _ int64) { c.Code.CPUTime = c.Code.WallTime },
			why: func(c *Config) string {
				return fmt.Sprintf("%s is longer than code.wall_time (%s)", short(c.Code.CPUTime), short(c.Code.WallTime))
			},
		},
		number("code.parallel", "code.max_calls", func(c *Config) *int { return &c.Code.Parallel }, func(c *Config) *int { return &c.Code.MaxCalls }),
		number("code.paused_per_user", "code.paused_in_all", func(c *Config) *int { return &c.Code.PausedPerUser }, func(c *Config) *int { return &c.Code.PausedInAll }),
		ofMessage("code.max_source", "limits.body", func(c *Config) *int { return &c.Code.MaxSource }, body),
		ofMessage("code.max_call_result", "limits.message", func(c *Config) *int { return &c.Code.MaxCallResult }, message),
		inMemory("code.max_call_result", func(c *Config) *int { return &c.Code.MaxCallResult }),
		inMemory("code.max_arguments", func(c *Config) *int { return &c.Code.MaxArguments }),
		inMemory("code.max_value", func(c *Config) *int { return &c.Code.MaxValue }),
		inMemory("code.max_content", func(c *Config) *int { return &c.Code.MaxContent }),
		{
			key: "code.result_tokens", outer: "code.max_value",
			inner: func(c *Config) int64 { return int64(c.Code.ResultTokens) },
			most:  func(c *Config) int64 { return int64(c.Code.MaxValue / bytesOfToken) },
			set:   func(c *Config, n int64) { c.Code.ResultTokens = int(n) },
			why: func(c *Config) string {
				return fmt.Sprintf("%d tokens are up to %d bytes, more than code.max_value (%d)", c.Code.ResultTokens, c.Code.ResultTokens*bytesOfToken, c.Code.MaxValue)
			},
		},
	}
}

// code derives the inner limits that the file does not give from the outer
// ones, and refuses those it gives that contradict them.
func (v *validator) code() {
	for _, b := range codeBounds() {
		most := b.most(v.c)
		if b.inner(v.c) <= most || v.isBroken(b.outer) {
			continue
		}
		if !v.has(b.key) {
			b.set(v.c, most)
			continue
		}
		v.report(b.key, "%s; lower it or raise the other", b.why(v.c))
	}
}
