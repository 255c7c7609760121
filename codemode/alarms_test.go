package codemode

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Timers ring in their order, equal ones in that of their calls, and ten
// thousand at once are not ten thousand goroutines of the portal.
func TestTimersRingInOrder(t *testing.T) {
	p := testPool(t, nil)
	wantValue(t, run(t, p, nil, `
		const seen = []
		for (let i = 0; i < 200; i++) setTimeout(() => seen.push(i), 1)
		setTimeout(() => seen.push('late'), 30); setTimeout(() => seen.push('cleared'), 20); clearTimeout(202)
		setTimeout(() => seen.push('nested'), 0)
		await sleep(60)
		const rest = seen.filter(x => typeof x === 'number')
		return [rest.length, rest.every((x, i) => x === i), seen.indexOf('late') > seen.indexOf(199), seen.includes('nested'), seen.includes('cleared')]`),
		`[200,true,true,true,false]`)

	wantValue(t, run(t, p, nil, "1"), "1")
	before := runtime.NumGoroutine()
	var most atomic.Int64
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			}
		}
	}()
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "await Promise.all(Array.from({length: 9999}, () => sleep(1))); 'done'"}, nil)
	close(stop)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, o, `"done"`)
	if n := most.Load(); n > int64(before)+50 {
		t.Errorf("%d goroutines, before %d", n, before)
	}
}

func TestAlarmsThatAreOff(t *testing.T) {
	rang := make(chan int, 10)
	a := newAlarms(func(n int) { rang <- n })
	if !a.add(1, time.Hour, 2) || !a.add(2, 0, 2) || a.add(3, 0, 1) {
		t.Error("the bound does not hold")
	}
	if n := <-rang; n != 2 {
		t.Errorf("%d rang", n)
	}
	a.stop()
	if !a.add(4, 0, 2) {
		t.Error("an alarm after the end is an error")
	}
	select {
	case n := <-rang:
		t.Errorf("%d rang after the end", n)
	case <-time.After(50 * time.Millisecond):
	}
}
