package writeguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// A budget of calls holds over any span of its length, for each user alone and
// on all replicas together.
func TestBudgets(t *testing.T) {
	st, clk := newMemory(), newClock()
	one, two := NewBudgets(st, clk.Now), NewBudgets(st, clk.Now)
	terms := &Terms{Rule: "r", Budget: config.Budget{PerMinute: 3, PerHour: 5}}
	take := func(b *Budgets, user string) error { return b.Take(t.Context(), user, terms, "") }
	for i, b := range []*Budgets{one, two, one} {
		if err := take(b, "a"); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		clk.add(10 * time.Second)
	}
	if err := take(two, "a"); !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), "3 calls of one user in any minute") {
		t.Errorf("a fourth in a minute: %v", err)
	}
	if err := one.Room(t.Context(), "a", terms, ""); !errors.Is(err, ErrBudget) {
		t.Errorf("room for a fourth: %v", err)
	}
	if err := take(one, "b"); err != nil {
		t.Errorf("another user: %v", err)
	}
	// The first was 30 s ago: in 31 s it is out of every minute that ends then.
	clk.add(31 * time.Second)
	for range 3 { // looking counts nothing
		if err := one.Room(t.Context(), "a", terms, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(one, "a"); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	clk.add(2 * time.Minute)
	if err := take(one, "a"); err != nil {
		t.Error(err)
	}
	if err := take(one, "a"); !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), "hour") {
		t.Errorf("a sixth in an hour: %v", err)
	}
	clk.add(time.Hour + time.Minute)
	if err := take(one, "a"); err != nil {
		t.Errorf("after an hour: %v", err)
	}
	st.set(true, false)
	if err := take(one, "a"); err == nil || errors.Is(err, ErrBudget) {
		t.Errorf("a store that is away: %v", err)
	}
}

// What was not sent after all counts no more, and no other call counts shorter
// for it.
func TestBudgetsGiveBack(t *testing.T) {
	clk := newClock()
	b := NewBudgets(newMemory(), clk.Now)
	terms := &Terms{Rule: "r", Budget: config.Budget{PerMinute: 2, PerRun: 2}}
	room := func() error { return b.Room(t.Context(), "a", terms, "run") }
	give := func() {
		t.Helper()
		if err := b.GiveBack(t.Context(), "a", terms, "run"); err != nil {
			t.Fatal(err)
		}
	}
	give() // of nothing
	for range 2 {
		if err := b.Take(t.Context(), "a", terms, "run"); err != nil {
			t.Fatal(err)
		}
		clk.add(20 * time.Second)
	}
	if room() == nil {
		t.Fatal("there is room for a third")
	}
	give()
	if err := b.Take(t.Context(), "a", terms, "run"); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	if room() == nil {
		t.Error("one given back makes room for two")
	}
	// One stays of those of 40 s and 20 s ago; it counts as the later.
	if clk.add(25 * time.Second); b.Take(t.Context(), "a", &Terms{Rule: "r", Budget: config.Budget{PerMinute: 2}}, "") == nil {
		t.Error("the call that stayed counts shorter than it should")
	}
}

func TestBudgetsRace(t *testing.T) {
	st, clk := newMemory(), newClock()
	terms := &Terms{Rule: "r", Budget: config.Budget{PerMinute: 10, PerRun: 7}}
	for _, run := range []string{"", "run-1"} {
		clk.add(time.Hour)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for range 40 {
			wg.Go(func() {
				switch err := NewBudgets(st, clk.Now).Take(t.Context(), "a", terms, run); {
				case err == nil:
					mu.Lock()
					got++
					mu.Unlock()
				case !errors.Is(err, ErrBudget):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want := 10
		if run != "" {
			want = 7
		}
		if got != want {
			t.Errorf("%d calls went through, want %d", got, want)
		}
	}
}

// What a session has read is known on every replica, survives an outage of
// the store, and what is not known counts as unknown.
func TestTaints(t *testing.T) {
	st, clk := newMemory(), newClock()
	one, two := NewTaints(st, nil, clk.Now), NewTaints(st, nil, clk.Now)
	is := func(x *Taints, want Labels, fails bool) {
		t.Helper()
		got, err := x.Of(t.Context(), "s")
		if got != want || (err != nil) != fails {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	is(one, 0, false)
	one.Add(t.Context(), "s", Private|External)
	is(one, Private, false)
	is(two, Private, false)
	if got, _ := two.Of(t.Context(), "other"); got != 0 {
		t.Errorf("another session: %s", got)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	one.Add(gone, "left", Private)
	if got, _ := two.Of(t.Context(), "left"); got != Private {
		t.Errorf("of a client that has gone another replica knows %s", got)
	}
	wrote := st.wrote
	one.Add(t.Context(), "s", Private)
	if st.wrote != wrote {
		t.Error("what is known is written again")
	}
	clk.add(time.Hour)
	one.Add(t.Context(), "s", Private)
	if st.wrote == wrote {
		t.Error("it is not kept for longer")
	}
	st.set(true, false)
	two.Add(t.Context(), "s", Untrusted)
	is(one, Private, true)
	is(two, Untrusted, true) // and perhaps more
	st.set(false, false)
	two.Flush(t.Context())
	is(one, Private|Untrusted, false)
	st.set(true, false)
	is(two, Private|Untrusted, false)
}

var boss = config.Approvers{Groups: []string{"bosses"}, Users: []string{"Carol@Example.com"}}

func others(c Call, terms Terms) (Call, Decision) {
	d := ask
	terms.Rule = "r"
	d.Terms = &terms
	return c, d
}

// Whom a rule names answers, nobody else, and never the one who asks.
func TestApproversAreOthers(t *testing.T) {
	st := newMemory()
	a := NewApprovals(st, nil, Options{})
	head := *bob
	head.ID, head.Groups = "https://idp|head", []string{"bosses"}
	carol := *bob
	carol.ID, carol.Email, carol.Groups = "https://idp|carol", "carol@example.com", nil
	robotBoss := *robot
	robotBoss.Groups = []string{"bosses"}
	aliceBoss := *alice
	aliceBoss.Groups = []string{"bosses"}
	for i, by := range []Answer{{By: &head}, {By: &carol}} {
		c, d := others(call("dns", fmt.Sprint("t", i), Write), Terms{Approvers: boss})
		ap, err := a.Request(t.Context(), c, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, no := range []Answer{{By: alice, Via: ViaWeb}, {By: &aliceBoss, Via: ViaWeb}, {By: bob, Via: ViaWeb}, {By: &robotBoss, Via: ViaWeb}, {By: by.By, Via: ViaElicitation}} {
			no.Approve = true
			if err := a.Decide(t.Context(), ap.ID, no); !errors.Is(err, ErrNotYours) {
				t.Errorf("%s via %s: %v", no.By.ID, no.Via, err)
			}
		}
		if ap.MaySee(bob) || !ap.MaySee(alice) || !ap.MaySee(by.By) {
			t.Error("the wrong people see it")
		}
		list, err := a.ListOthers(t.Context(), by.By)
		if err != nil || len(list) == 0 || list[0].ID != ap.ID {
			t.Errorf("%s finds %v, %v", by.By.ID, list, err)
		}
		if list, _ := a.ListOthers(t.Context(), bob); len(list) != 0 {
			t.Errorf("bob finds %v", list)
		}
		by.Approve, by.Via = true, ViaWeb
		if err := a.Decide(t.Context(), ap.ID, by); err != nil {
			t.Errorf("%s: %v", by.By.ID, err)
		}
		if got, _ := a.Get(t.Context(), ap.ID); got.State != Approved || got.DecidedBy != by.By.ID {
			t.Errorf("%+v", got)
		}
		if err := a.Consume(t.Context(), ap); err != nil {
			t.Error(err)
		}
	}
	c, d := others(call("dns", "own", Write), Terms{Approvers: config.Approvers{Groups: []string{"bosses"}, Requester: true}})
	ap, err := a.Request(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: ViaElicitation}); err != nil {
		t.Errorf("the requester where the rule allows it: %v", err)
	}
}

// An answer given under other terms releases nothing any more.
func TestChangedTermsAskAnew(t *testing.T) {
	a := NewApprovals(newMemory(), nil, Options{})
	c := call("dns", "t", Write)
	first, err := a.Request(t.Context(), c, ask)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Decide(t.Context(), first.ID, Answer{By: alice, Approve: true, Via: ViaWeb}); err != nil {
		t.Fatal(err)
	}
	c, d := others(c, Terms{Approvers: boss})
	second, err := a.Request(t.Context(), c, d)
	if err != nil || second.ID == first.ID || second.State != Pending {
		t.Errorf("%+v, %v", second, err)
	}
}

func TestViaIsWhereItIsAnswered(t *testing.T) {
	a := NewApprovals(newMemory(), nil, Options{})
	for via, refused := range map[string]string{"web": ViaElicitation, "client": ViaWeb} {
		c, d := others(call("dns", via, Write), Terms{Via: via})
		ap, err := a.Request(t.Context(), c, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []string{ViaElicitation, ViaWeb} {
			err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: way})
			if (way == refused) != errors.Is(err, ErrNotYours) {
				t.Errorf("via %s by %s: %v", via, way, err)
			}
		}
	}
}

// A grant releases as many calls of the tool in the run as the approver said,
// those that wait first; no more than the rule allows, and nothing elsewhere.
func TestGrants(t *testing.T) {
	st := newMemory()
	a := NewApprovals(st, nil, Options{})
	in := func(run string, n int) (Call, Decision) {
		c := call("dns", "record_delete", Destructive)
		c.Mode, c.Run, c.Arguments = Code, run, []byte(fmt.Sprintf(`{"id":%d}`, n))
		return others(c, Terms{Grant: 5})
	}
	var waiting []*Approval
	for i := range 3 {
		c, d := in("run-1", i)
		ap, err := a.Request(t.Context(), c, d)
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, ap)
	}
	other, _ := in("run-2", 0)
	other.Arguments = []byte(`{"id":77}`)
	_, d := in("run-2", 0)
	elsewhere, err := a.Request(t.Context(), other, d)
	if err != nil {
		t.Fatal(err)
	}
	for n, via := range map[int]string{6: ViaWeb, -1: ViaWeb, 3: ViaElicitation} {
		if err := a.Decide(t.Context(), waiting[0].ID, Answer{By: alice, Approve: true, Via: via, Grant: n}); !errors.Is(err, ErrGrant) {
			t.Errorf("%d by %s: %v", n, via, err)
		}
	}
	if err := a.Decide(t.Context(), waiting[0].ID, Answer{By: alice, Approve: true, Via: ViaWeb, Grant: 5}); err != nil {
		t.Fatal(err)
	}
	for _, w := range waiting {
		if now, _ := a.Get(t.Context(), w.ID); now.State != Approved {
			t.Errorf("a waiting call is %s", now.State)
		}
	}
	if now, _ := a.Get(t.Context(), elsewhere.ID); now.State != Pending {
		t.Errorf("a call of another run is %s", now.State)
	}
	// A run that begins anew makes the granted call itself again: it has its own
	// yes and takes none of the others'.
	again, terms := in("run-1", 0)
	if id, err := a.UseGrant(t.Context(), again, terms); id != "" || err != nil {
		t.Errorf("a call with a yes of its own used %q of the grant: %v", id, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	used := 0
	for i := range 20 {
		wg.Go(func() {
			c, d := in("run-1", 100+i)
			id, err := a.UseGrant(t.Context(), c, d)
			if err != nil {
				t.Error(err)
			}
			if id != "" {
				mu.Lock()
				used++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if used != 2 {
		t.Errorf("%d further calls were released, want 2", used)
	}
	// A rule of another name, or one that grants nothing any more, has given
	// nothing; neither has an approval outside code.
	c, d := in("run-3", 33)
	ap, _ := a.Request(t.Context(), c, d)
	if err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: ViaWeb, Grant: 4}); err != nil {
		t.Fatal(err)
	}
	renamed := d
	renamed.Rule = "another"
	for _, x := range []Decision{renamed, ask} {
		if id, err := a.UseGrant(t.Context(), c, x); id != "" || err != nil {
			t.Errorf("%q, %v", id, err)
		}
	}
	direct, d := others(call("dns", "direct", Write), Terms{Grant: 5})
	ap, _ = a.Request(t.Context(), direct, d)
	if err := a.Decide(t.Context(), ap.ID, Answer{By: alice, Approve: true, Via: ViaWeb, Grant: 2}); !errors.Is(err, ErrGrant) {
		t.Errorf("a grant outside code: %v", err)
	}
}
