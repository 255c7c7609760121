package codemode

import (
	"container/heap"
	"sync"
	"time"
)

// alarms are the timers of one script. They ring one after another, in the order
// of their times and, for equal ones, in that in which they were set, however
// many are due: a goroutine for each would be the script's to multiply.
type alarms struct {
	ring func(n int) // may block

	mu      sync.Mutex
	set     alarmHeap
	timer   *time.Timer // for the first one
	ringing bool        // a goroutine is at it
	off     bool
}

type alarm struct {
	n  int // of the question
	at time.Time
}

func newAlarms(ring func(n int)) *alarms { return &alarms{ring: ring} }

// add sets an alarm, unless most are set by now.
func (a *alarms) add(n int, after time.Duration, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.set) >= most {
		return false
	}
	if a.off {
		return true // nobody waits any more
	}
	heap.Push(&a.set, alarm{n, time.Now().Add(after)})
	a.armLocked()
	return true
}

// stop forgets all alarms.
func (a *alarms) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off, a.set = true, nil
	if a.timer != nil {
		a.timer.Stop()
	}
}

// armLocked has the first alarm ring in time.
func (a *alarms) armLocked() {
	if a.ringing || len(a.set) == 0 {
		return // who is at it looks again when it is done
	}
	left := time.Until(a.set[0].at)
	if a.timer == nil {
		a.timer = time.AfterFunc(left, a.due)
	} else {
		a.timer.Reset(left)
	}
}

// due rings what is due.
func (a *alarms) due() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ringing {
		return
	}
	a.ringing = true
	for len(a.set) > 0 && !a.set[0].at.After(time.Now()) {
		first, _ := heap.Pop(&a.set).(alarm)
		a.mu.Unlock()
		a.ring(first.n)
		a.mu.Lock()
	}
	a.ringing = false
	a.armLocked()
}

type alarmHeap []alarm

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].n < h[j].n
	}
	return h[i].at.Before(h[j].at)
}
func (h alarmHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any) {
	if v, ok := x.(alarm); ok {
		*h = append(*h, v)
	}
}
func (h *alarmHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
