package codemode

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// Runs that wait for people lend their places to others, of the same user too,
// and take them back when they go on; afterwards every place is free.
func TestWaitingRunsLendTheirPlaces(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MaxWorkers, c.RunsPerUser = 2, 2 })
	goOn := make(chan struct{})
	type end struct {
		out *Outcome
		err error
	}
	ends := make(chan end, 6)
	asked := make(chan struct{}, 6)
	for range 6 {
		pause := &Pause{}
		host := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) {
			pause.Begin()
			defer pause.End()
			asked <- struct{}{}
			<-goOn
			return json.RawMessage(`{"content":[],"structuredContent":{"ok":true}}`), nil
		}}
		go func() {
			out, err := p.Run(context.Background(), Request{Owner: "u", Code: "return (await s.t()).ok", Tools: tools("s_t"), Paused: pause}, host)
			ends <- end{out, err}
		}()
		<-asked // with two places, six could never wait at once unless they lent them
	}
	if running, queued := p.turns.counts(); running != 0 || queued != 0 {
		t.Errorf("six runs wait for people: %d places are taken, %d runs queue", running, queued)
	}
	out, err := p.Run(context.Background(), Request{Owner: "u", Code: "return 1"}, &fakeHost{})
	if err != nil || out.Error != nil || string(out.Value) != "1" {
		t.Errorf("a run beside them: %+v %v", out, err)
	}
	close(goOn)
	for range 6 {
		if e := <-ends; e.err != nil || e.out.Error != nil || string(e.out.Value) != "true" {
			t.Errorf("a run that waited: %+v %v", e.out, e.err)
		}
	}
	if running, _ := p.turns.counts(); running != 0 {
		t.Errorf("%d places are still taken", running)
	}
}

// Waiting for a person uses up nothing of a run's processor time, so that it
// may take long: the worker does nothing meanwhile.
func TestWaitingCostsNoProcessorTime(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.Workers = 1 })
	worker := 0
	for deadline := time.Now().Add(60 * time.Second); worker == 0; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		if len(p.warm) == 1 {
			worker = p.warm[0].cmd.Process.Pid
		}
		p.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("no worker is ready")
		}
	}
	pause := &Pause{}
	var used time.Duration
	host := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) {
		pause.Begin()
		defer pause.End()
		time.Sleep(1500 * time.Millisecond) // what the call itself cost is over
		before, ok := cpuTime(worker)
		time.Sleep(4 * time.Second)
		after, still := cpuTime(worker)
		if !ok || !still {
			t.Error("the worker cannot be measured")
		}
		used = after - before
		return json.RawMessage(`{"content":[],"structuredContent":{"ok":true}}`), nil
	}}
	out, err := p.Run(context.Background(), Request{Owner: "u", Code: "return (await s.t()).ok", Tools: tools("s_t"), Paused: pause}, host)
	if err != nil || out.Error != nil || string(out.Value) != "true" {
		t.Fatalf("%+v %v", out, err)
	}
	t.Logf("%v of processor time in 4 s", used)
	if used > 80*time.Millisecond { // 2%: with 5 s allowed, minutes would end it
		t.Errorf("waiting 4 s cost %v of processor time", used)
	}
}

// A run that is cancelled while it waits gives its place back once.
func TestCancelWhileWaiting(t *testing.T) {
	p := testPool(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	pause := &Pause{}
	host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
		pause.Begin()
		defer pause.End()
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := p.Run(ctx, Request{Owner: "u", Code: "return await s.t()", Tools: tools("s_t"), Paused: pause}, host); err == nil {
		t.Error("a cancelled run returned no error")
	}
	eventuallyFree(t, p)
}

func eventuallyFree(t *testing.T, p *Pool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		running, _ := p.turns.counts()
		if running == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d places are taken for ever", running)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
