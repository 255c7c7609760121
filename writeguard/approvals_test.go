package writeguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/store"
)

var ask = Decision{Action: Approve, Classification: Classification{Class: Destructive, Source: "name", Why: `the name says "delete"`}, Rule: "preset careful", Reason: "because"}

func deletion(args string) Call {
	return Call{Principal: alice, Client: "agent/1", Mode: Direct, Server: "dns", Tool: "record_delete", Arguments: json.RawMessage(args)}
}

func newApprovals(st store.Store, c *clock, o Options) *Approvals {
	o.Now = c.Now
	if o.Poll == 0 {
		o.Poll = 20 * time.Millisecond
	}
	return NewApprovals(st, nil, o)
}

func request(t *testing.T, a *Approvals, c Call) *Approval {
	t.Helper()
	ap, err := a.Request(t.Context(), c, ask)
	if err != nil {
		t.Fatal(err)
	}
	return ap
}

func decideOK(t *testing.T, a *Approvals, id string, approve bool) {
	t.Helper()
	if err := a.Decide(t.Context(), id, Answer{By: alice, Approve: approve, Via: ViaWeb, Note: "ok"}); err != nil {
		t.Fatal(err)
	}
}

func TestOneApprovalOneCall(t *testing.T) {
	onStores(t, oneApprovalOneCall)
}

func oneApprovalOneCall(t *testing.T, first, second store.Store) {
	c := newClock()
	one, two := newApprovals(first, c, Options{}), newApprovals(second, c, Options{})

	ap := request(t, one, deletion(`{"zone":"z","id":9007199254740993}`))
	if ap.State != Pending || ap.Class != Destructive || ap.Rule != "preset careful" || !ap.Expires.Equal(c.Now().Add(15*time.Minute)) {
		t.Fatalf("asked: %+v", ap)
	}
	if err := one.Consume(t.Context(), ap); !errors.Is(err, ErrUnusable) {
		t.Errorf("a pending approval was used: %v", err)
	}
	// The same call on the other replica, members in another order.
	again := request(t, two, deletion(`{ "id": 9007199254740993, "zone": "z" }`))
	if again.ID != ap.ID || !again.Covers(deletion(`{"zone":"z","id":9007199254740993}`)) {
		t.Fatalf("the same call was asked for twice: %s, %s", ap.ID, again.ID)
	}
	decideOK(t, two, ap.ID, true)
	got := request(t, one, deletion(`{"zone":"z","id":9007199254740993}`))
	if got.ID != ap.ID || got.State != Approved || got.DecidedBy != alice.ID || got.Via != ViaWeb || got.Note != "ok" {
		t.Fatalf("after the decision: %+v", got)
	}
	if err := one.Consume(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Approvals{one, two} {
		if err := a.Consume(t.Context(), got); !errors.Is(err, ErrUnusable) {
			t.Errorf("used twice: %v", err)
		}
	}
	if next := request(t, two, deletion(`{"zone":"z","id":9007199254740993}`)); next.ID == ap.ID || next.State != Pending {
		t.Errorf("the next call is not asked for: %+v", next)
	}
	if used, err := two.Get(t.Context(), ap.ID); err != nil || used.State != Used || used.UsedAt.IsZero() {
		t.Errorf("after use: %+v, %v", used, err)
	}
}

func TestAnotherCallIsAnotherApproval(t *testing.T) {
	a := newApprovals(newMemory(), newClock(), Options{})
	base := deletion(`{"id":1}`)
	ap := request(t, a, base)
	decideOK(t, a, ap.ID, true)
	approved, err := a.Get(t.Context(), ap.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Call){
		"user":                 func(c *Call) { c.Principal = bob },
		"server":               func(c *Call) { c.Server = "crm" },
		"tool":                 func(c *Call) { c.Tool = "record-delete" },
		"argument":             func(c *Call) { c.Arguments = json.RawMessage(`{"id":2}`) },
		"same number, written": func(c *Call) { c.Arguments = json.RawMessage(`{"id":1.0}`) },
		"more arguments":       func(c *Call) { c.Arguments = json.RawMessage(`{"id":1,"force":true}`) },
		"no arguments":         func(c *Call) { c.Arguments = nil },
	} {
		other := base
		edit(&other)
		got := request(t, a, other)
		if got.ID == ap.ID || got.State != Pending {
			t.Errorf("%s: the approval was taken for another call: %+v", name, got)
		}
		if approved.Covers(other) {
			t.Errorf("%s: Covers is true", name)
		}
		got.ID = ap.ID // what a mistake in a caller would do
		if err := a.Consume(t.Context(), got); !errors.Is(err, ErrUnusable) {
			t.Errorf("%s: the approval released another call: %v", name, err)
		}
	}
	if err := a.Consume(t.Context(), approved); err != nil {
		t.Errorf("the approval itself: %v", err)
	}
}

func TestWhoDecides(t *testing.T) {
	a := newApprovals(newMemory(), newClock(), Options{})
	ap := request(t, a, deletion(`{}`))
	for _, by := range []*auth.Principal{nil, {}, bob, robot} {
		if err := a.Decide(t.Context(), ap.ID, Answer{By: by, Approve: true, Via: ViaWeb}); !errors.Is(err, ErrNotYours) {
			t.Errorf("decided by %+v: %v", by, err)
		}
	}
	if err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: "telepathy"}); err == nil {
		t.Error("an unknown way was accepted")
	}
	for _, id := range []string{"", "nope", "ap-" + strings.Repeat("A", 26), "ap-../../x", ap.ID + "A"} {
		if err := a.Decide(t.Context(), id, Answer{By: alice, Approve: true, Via: ViaWeb}); !errors.Is(err, ErrNotFound) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	if got, _ := a.Get(t.Context(), ap.ID); got.State != Pending {
		t.Errorf("state %s after decisions that do not count", got.State)
	}
	decideOK(t, a, ap.ID, false)
	if err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: ViaWeb}); !errors.Is(err, ErrClosed) {
		t.Errorf("decided twice: %v", err)
	}
}

func TestExpiry(t *testing.T) {
	c := newClock()
	a := newApprovals(newMemory(), c, Options{Expires: 10 * time.Minute})

	late := request(t, a, deletion(`{"n":1}`))
	c.add(10 * time.Minute)
	if err := a.Decide(t.Context(), late.ID, Answer{By: alice, Approve: true, Via: ViaWeb}); !errors.Is(err, ErrClosed) {
		t.Errorf("an expired question was answered: %v", err)
	}
	if got, _ := a.Get(t.Context(), late.ID); got.State != Expired {
		t.Errorf("state %s", got.State)
	}
	if got, err := a.Wait(t.Context(), late.ID); err != nil || got.State != Expired {
		t.Errorf("Wait: %+v, %v", got, err)
	}
	if next := request(t, a, deletion(`{"n":1}`)); next.ID == late.ID || next.State != Pending {
		t.Errorf("after expiry: %+v", next)
	}

	unused := request(t, a, deletion(`{"n":2}`))
	c.add(9 * time.Minute)
	decideOK(t, a, unused.ID, true)
	c.add(9 * time.Minute) // an answer may be used for as long again
	if got, _ := a.Get(t.Context(), unused.ID); got.State != Approved {
		t.Errorf("state %s, want approved", got.State)
	}
	c.add(time.Minute)
	if err := a.Consume(t.Context(), unused); !errors.Is(err, ErrUnusable) {
		t.Errorf("an expired approval was used: %v", err)
	}
}

func TestDeniedIsNotAskedAgainAtOnce(t *testing.T) {
	c := newClock()
	a := newApprovals(newMemory(), c, Options{})
	ap := request(t, a, deletion(`{}`))
	decideOK(t, a, ap.ID, false)
	c.add(59 * time.Second)
	if got := request(t, a, deletion(`{}`)); got.ID != ap.ID || got.State != Denied {
		t.Errorf("59 s after: %+v", got)
	}
	if got := request(t, a, deletion(`{"other":1}`)); got.State != Pending {
		t.Errorf("another call: %+v", got)
	}
	c.add(time.Second)
	if got := request(t, a, deletion(`{}`)); got.ID == ap.ID || got.State != Pending {
		t.Errorf("60 s after: %+v", got)
	}
}

// TestRaces runs every step with 50 goroutines over two replicas: one record,
// one decision, one use.
func TestRaces(t *testing.T) {
	onStores(t, races)
}

func races(t *testing.T, first, second store.Store) {
	c := newClock()
	replicas := []*Approvals{newApprovals(first, c, Options{MaxPending: 3}), newApprovals(second, c, Options{MaxPending: 3})}
	each := func(f func(i int, a *Approvals)) {
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 50 {
			wg.Go(func() { <-start; f(i, replicas[i%2]) })
		}
		close(start)
		wg.Wait()
	}
	for round := range 4 {
		call := deletion(fmt.Sprintf(`{"round":%d}`, round))
		var ids sync.Map
		each(func(_ int, a *Approvals) {
			ap, err := a.Request(t.Context(), call, ask)
			if err != nil {
				t.Error(err)
				return
			}
			ids.Store(ap.ID, true)
		})
		var id string
		n := 0
		ids.Range(func(k, _ any) bool { id = k.(string); n++; return true })
		if n != 1 {
			t.Fatalf("%d records for one call", n)
		}
		var yes, no, closed atomic.Int32
		each(func(i int, a *Approvals) {
			switch err := a.Decide(t.Context(), id, Answer{By: alice, Approve: i%3 != 0, Via: ViaWeb, Note: fmt.Sprint(i)}); {
			case errors.Is(err, ErrClosed):
				closed.Add(1)
			case err != nil:
				t.Error(err)
			case i%3 != 0:
				yes.Add(1)
			default:
				no.Add(1)
			}
		})
		if yes.Load()+no.Load() != 1 || closed.Load() != 49 {
			t.Fatalf("%d yes, %d no, %d closed", yes.Load(), no.Load(), closed.Load())
		}
		ap, err := replicas[0].Get(t.Context(), id)
		if err != nil || (ap.State == Approved) != (yes.Load() == 1) {
			t.Fatalf("state %+v, %v after %d yes", ap, err, yes.Load())
		}
		var used atomic.Int32
		each(func(_ int, a *Approvals) {
			switch err := a.Consume(t.Context(), ap); {
			case err == nil:
				used.Add(1)
			case !errors.Is(err, ErrUnusable):
				t.Error(err)
			}
		})
		if used.Load() != yes.Load() {
			t.Fatalf("used %d times after %d yes", used.Load(), yes.Load())
		}
	}
}

func TestPendingCap(t *testing.T) {
	c := newClock()
	a := newApprovals(newMemory(), c, Options{MaxPending: 5})
	var mu sync.Mutex
	var got []*Approval
	refused := 0
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ap, err := a.Request(t.Context(), deletion(fmt.Sprintf(`{"n":%d}`, i)), ask)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got = append(got, ap)
			case errors.Is(err, ErrTooMany):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(got) != 5 || refused != 15 {
		t.Fatalf("%d asked, %d refused; want 5 and 15", len(got), refused)
	}
	if list, err := a.ListFor(t.Context(), alice.ID); err != nil || len(list) != 5 {
		t.Fatalf("list of %d, %v", len(list), err)
	}
	other := deletion(`{"n":99}`)
	other.Principal = bob
	request(t, a, other) // another user's room is another

	decideOK(t, a, got[0].ID, false)
	request(t, a, deletion(`{"n":100}`)) // an answer makes room
	if _, err := a.Request(t.Context(), deletion(`{"n":101}`), ask); !errors.Is(err, ErrTooMany) {
		t.Errorf("the sixth: %v", err)
	}
	c.add(15 * time.Minute) // and so does time
	request(t, a, deletion(`{"n":101}`))
}

func TestWhatCannotBeShownIsRefused(t *testing.T) {
	st := newMemory()
	a := newApprovals(st, newClock(), Options{})
	for name, tt := range map[string]struct {
		call Call
		d    Decision
		want error
	}{
		"too large":   {deletion(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`), ask, ErrTooLarge},
		"not JSON":    {deletion(`{"a"`), ask, nil},
		"ambiguous":   {deletion(`{"a":1,"a":2}`), ask, nil},
		"no user":     {Call{Server: "s", Tool: "t"}, ask, nil},
		"no tool":     {Call{Principal: alice, Server: "s"}, ask, nil},
		"denied call": {deletion(`{}`), Decision{Action: Deny}, nil},
		"no decision": {deletion(`{}`), Decision{}, nil},
	} {
		ap, err := a.Request(t.Context(), tt.call, tt.d)
		if err == nil || ap != nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v", name, ap, err)
		}
	}
	if st.wrote != 0 {
		t.Errorf("%d writes for refused requests", st.wrote)
	}
}

func TestListFor(t *testing.T) {
	c := newClock()
	a := newApprovals(newMemory(), c, Options{})
	ids := map[string]string{}
	for i := range 4 {
		c.add(time.Second)
		ids[request(t, a, deletion(fmt.Sprintf(`{"n":%d}`, i))).ID] = fmt.Sprint(i)
	}
	for id, n := range ids {
		if n == "3" || n == "1" {
			decideOK(t, a, id, n == "1")
		}
	}
	list, err := a.ListFor(t.Context(), alice.ID)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, ap := range list {
		order = append(order, ids[ap.ID]+" "+string(ap.State))
	}
	if want := []string{"2 pending", "0 pending", "3 denied", "1 approved"}; !reflect.DeepEqual(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if list, err := a.ListFor(t.Context(), bob.ID); err != nil || len(list) != 0 {
		t.Errorf("bob sees %d, %v", len(list), err)
	}
	for i := range 3 * closedKept { // the list does not grow for ever
		decideOK(t, a, request(t, a, deletion(fmt.Sprintf(`{"m":%d}`, i))).ID, false)
	}
	list, err = a.ListFor(t.Context(), alice.ID)
	if err != nil || len(list) < 2+closedKept || len(list) > 3+closedKept || list[0].State != Pending {
		t.Errorf("%d in the list, %v", len(list), err)
	}
}

func TestDamagedRecord(t *testing.T) {
	st := newMemory()
	a := newApprovals(st, newClock(), Options{})
	ap := request(t, a, deletion(`{"id":1}`))
	decideOK(t, a, ap.ID, true)
	raw, _, _ := st.Get(t.Context(), recordKey(ap.ID))
	for name, bad := range map[string]string{
		"other arguments": strings.Replace(string(raw), `{"id":1}`, `{"id":2}`, 1),
		"cut":             string(raw[:len(raw)/2]),
	} {
		if bad == string(raw) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := st.Set(t.Context(), recordKey(ap.ID), []byte(bad), 0); err != nil {
			t.Fatal(err)
		}
		if err := a.Consume(t.Context(), ap); err == nil {
			t.Errorf("%s: a damaged record released a call", name)
		}
		if _, err := a.Request(t.Context(), deletion(`{"id":1}`), ask); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
