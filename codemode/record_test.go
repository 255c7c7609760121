package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// journal keeps events in memory.
type journal struct {
	mu     sync.Mutex
	events []Event
	added  chan struct{}
}

func newJournal(events []Event) *journal {
	return &journal{events: append([]Event(nil), events...), added: make(chan struct{}, 1)}
}

func (j *journal) Add(ev Event) {
	j.mu.Lock()
	j.events = append(j.events, ev)
	j.mu.Unlock()
	select {
	case j.added <- struct{}{}:
	default:
	}
}

func (j *journal) all() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Event(nil), j.events...)
}

// throughStore is what a store that compacts JSON gives back.
func throughStore(t *testing.T, events []Event) []Event {
	t.Helper()
	b, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	var out []Event
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// wandering is a script whose way depends on everything that may vary: chance,
// the clock, the order of answers, races, timers, errors.
const wandering = `
	const log = [];
	const id = crypto.randomUUID();
	async function walk(name, n) {
		for (let i = 0; i < n; i++) {
			await sleep(Math.floor(Math.random() * 3));
			try {
				const r = await codemode.call('s_step', {name, i, at: Date.now(), text: '<&> é ' + id});
				log.push([name, i, r.n, Date.now()]);
				if (r.n % 7 === 0) await codemode.search('step ' + r.n);
			} catch (e) { log.push([name, i, e.code, e.message]); }
		}
	}
	const first = await Promise.race([walk('a', 5).then(() => 'a'), walk('b', 5).then(() => 'b'), walk('c', 5).then(() => 'c')]);
	const held = await codemode.call('s_hold', {first, seen: log.length});
	await Promise.all([walk('d', 4), walk('e', 4)]);
	return {id, first, held, log, now: Date.now(), r: Math.random()};`

// A run that is killed anywhere and continued elsewhere makes the calls it
// would have made, each once, and comes to the same end as its last life did
// when replayed whole.
func TestContinuedRuns(t *testing.T) {
	p := testPool(t, nil)
	rounds := 25
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		var mu sync.Mutex
		made, n := map[string]int{}, 0
		host := &fakeHost{
			call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
				mu.Lock()
				if !c.Known {
					made[c.Tool+string(c.Arguments)]++
				}
				n++
				k, wait := n, time.Duration(rng.IntN(3))*time.Millisecond
				mu.Unlock()
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				if k%5 == 0 && c.Tool == "s_step" {
					return nil, &HostError{Code: "busy", Message: fmt.Sprintf("try %d", k)}
				}
				return json.RawMessage(fmt.Sprintf(`{"content":[], "structuredContent": {"n": %d,  "big": 12345678901234567890}}`, k)), nil
			},
			query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`[]`), nil
			},
		}
		rec := &Recording{Version: Version(), Seed: uint64(round), Start: 1_700_000_000_000}
		req := Request{ID: "r", Owner: "u", Code: wandering, Tools: tools("s_step", "s_hold"), Seed: rec.Seed, Start: rec.Start}
		var out *Outcome
		for life := 0; ; life++ {
			j := newJournal(rec.Events)
			ctx, cancel := context.WithCancel(context.Background())
			if life < 3 { // killed after some events
				mu.Lock()
				after := len(rec.Events) + 1 + rng.IntN(25)
				mu.Unlock()
				go func() {
					for range j.added {
						if len(j.all()) >= after {
							cancel()
							return
						}
						if ctx.Err() != nil {
							return
						}
					}
				}()
			}
			r := req
			r.Journal = j
			if life > 0 {
				r.Replay = rec
			}
			o, err := p.Run(ctx, r, host)
			cancel()
			rec.Events = throughStore(t, j.all())
			if err == nil {
				out = o
				break
			}
		}
		if out.Error != nil {
			t.Fatalf("round %d: %v", round, out.Error)
		}
		for call, times := range made {
			if times != 1 {
				t.Errorf("round %d: %d times for the first time: %s", round, times, call)
			}
		}
		// Once more, from the recording alone.
		r := req
		r.Replay = rec
		again, err := p.Run(context.Background(), r, &fakeHost{})
		if err != nil || again.Error != nil {
			t.Fatalf("round %d, replay: %v %v", round, err, again.Error)
		}
		if string(again.Value) != string(out.Value) {
			t.Errorf("round %d: the replay came to another end:\n%s\n%s", round, out.Value, again.Value)
		}
		for i, c := range again.Calls {
			if was := out.Calls[i]; c.Tool != was.Tool || c.Status != was.Status || c.Error != was.Error {
				t.Errorf("round %d: call %d is told as %+v, was %+v", round, i, c, was)
			}
		}
	}
}

// Code that does not repeat itself is stopped before it does anything new.
func TestDivergingRunSendsNothing(t *testing.T) {
	p := testPool(t, nil)
	j := newJournal(nil)
	host := answers(map[string]string{"s_get": structured(`{"n":1}`)})
	req := Request{ID: "r", Owner: "u", Tools: tools("s_get", "s_put"), Seed: 1, Start: 1}
	req.Code, req.Journal = "await s.get({page: 1}); return 1", j
	if _, err := p.Run(context.Background(), req, host); err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"await s.get({page: 2}); await s.put({}); return 1", "await s.put({page: 1}); return 1", "await codemode.search('x'); return 1"} {
		silent := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }}
		r := req
		r.Code, r.Journal, r.Replay = code, nil, &Recording{Seed: 1, Start: 1, Events: j.all()}
		o, err := p.Run(context.Background(), r, silent)
		if err != nil {
			t.Fatal(err)
		}
		if o.Error == nil || !strings.Contains(o.Error.Message, "did not repeat itself") || len(silent.calls()) != 0 {
			t.Errorf("%s: %v, calls %v", code, o.Error, silent.calls())
		}
	}
}

// Chance and time: the same for the same seed and start, others otherwise, and
// a loop that waits for the clock ends.
func TestChanceAndTimeAreGiven(t *testing.T) {
	p := testPool(t, nil)
	const code = `const t = Date.now(); while (Date.now() - t < 20); return [t, new Date(t).toISOString(), Math.random(), crypto.randomUUID()]`
	run := func(seed uint64, start int64) string {
		o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: code, Seed: seed, Start: start}, &fakeHost{})
		if err != nil || o.Error != nil {
			t.Fatal(err, o.Error)
		}
		return string(o.Value)
	}
	a, b, c, d := run(1, 1000), run(1, 1000), run(2, 1000), run(0, 0)
	if a != b || a == c || a == d || !strings.HasPrefix(a, `[1000,"1970-01-01T00:00:01.000Z",`) {
		t.Errorf("%s\n%s\n%s\n%s", a, b, c, d)
	}
	if x, y := run(0, 0), run(0, 0); x == y {
		t.Errorf("two runs have the same chance: %s", x)
	}
}
