package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// Run runs the suite. open returns a new, empty, working store, which Run
// closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s store.Store)
	}{
		{"values", values},
		{"binary values", binary},
		{"create", create},
		{"swap", swap},
		{"take", take},
		{"touch", touch},
		{"expiry", expiry},
		{"expiry is replaced by each write", expiryReplaced},
		{"keys", keys},
		{"bad arguments", badArguments},
		{"ended context", endedContext},
		{"create race", createRace},
		{"swap race", swapRace},
		{"swap counts every winner", swapCounter},
		{"take race", takeRace},
		{"publish order", publishOrder},
		{"publish reaches each subscriber once", publishFanOut},
		{"subscription ends", subscriptionEnds},
		{"slow subscriber", slowSubscriber},
		{"status", status},
		{"closed", closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { _ = s.Close() })
			// A machine that stalls for a second while the store opens makes
			// it start degraded, as it should.
			Eventually(t, "the store works", func() bool { return !s.Status().Degraded })
			c.test(t, s)
		})
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks what Get says of a key.
func want(t *testing.T, s store.Store, key, value string, exists bool) {
	t.Helper()
	v, found, err := s.Get(context.Background(), key)
	ok(t, err)
	if found != exists || string(v) != value {
		t.Fatalf("Get(%q) = %q, %v; want %q, %v", key, v, found, value, exists)
	}
	if !found && v != nil {
		t.Fatalf("Get(%q) of an absent key returned a value", key)
	}
}

// Eventually waits until cond holds, and fails the test when it never does.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func values(t *testing.T, s store.Store) {
	ctx := context.Background()
	want(t, s, "a", "", false)
	ok(t, s.Set(ctx, "a", []byte("1"), 0))
	want(t, s, "a", "1", true)
	ok(t, s.Set(ctx, "a", []byte("2"), time.Hour))
	want(t, s, "a", "2", true)
	want(t, s, "A", "", false)
	ok(t, s.Delete(ctx, "a"))
	want(t, s, "a", "", false)
	ok(t, s.Delete(ctx, "a"))
}

func binary(t *testing.T, s store.Store) {
	ctx := context.Background()
	for name, v := range map[string][]byte{
		"empty": {}, "nil": nil, "zero": {0, 0, 0}, "bytes": {0xff, 0xfe, '\n', '\r', 0},
		"large": bytes.Repeat([]byte("0123456789abcdef"), 1<<16),
	} {
		ok(t, s.Set(ctx, "b:"+name, v, 0))
		got, found, err := s.Get(ctx, "b:"+name)
		if err != nil || !found || got == nil || !bytes.Equal(got, v) {
			t.Errorf("%s: got %d bytes, %v, %v; want %d bytes", name, len(got), found, err, len(v))
		}
		if len(got) > 0 {
			got[0] ^= 1
			again, _, _ := s.Get(ctx, "b:"+name)
			if !bytes.Equal(again, v) {
				t.Errorf("%s: changing what Get returned changed the store", name)
			}
		}
	}
	if !must[bool](t)(s.Swap(ctx, "b:nil", nil, []byte("x"), 0)) {
		t.Error("an empty value is not equal to nil in Swap")
	}
}

func create(t *testing.T, s store.Store) {
	ctx := context.Background()
	if !must[bool](t)(s.Create(ctx, "c", []byte("1"), 0)) {
		t.Fatal("Create of an absent key did not write")
	}
	if must[bool](t)(s.Create(ctx, "c", []byte("2"), 0)) {
		t.Fatal("Create of a present key wrote")
	}
	want(t, s, "c", "1", true)
}

func swap(t *testing.T, s store.Store) {
	ctx := context.Background()
	if must[bool](t)(s.Swap(ctx, "s", []byte("1"), []byte("2"), 0)) {
		t.Fatal("Swap of an absent key wrote")
	}
	if must[bool](t)(s.Swap(ctx, "s", nil, []byte("2"), 0)) {
		t.Fatal("Swap of an absent key from nil wrote; that is Create")
	}
	want(t, s, "s", "", false)
	ok(t, s.Set(ctx, "s", []byte("1"), 0))
	if must[bool](t)(s.Swap(ctx, "s", []byte("x"), []byte("2"), 0)) {
		t.Fatal("Swap from another value wrote")
	}
	if !must[bool](t)(s.Swap(ctx, "s", []byte("1"), []byte("2"), 0)) {
		t.Fatal("Swap from the value did not write")
	}
	want(t, s, "s", "2", true)
}

func take(t *testing.T, s store.Store) {
	ctx := context.Background()
	if _, found, err := s.Take(ctx, "t"); err != nil || found {
		t.Fatalf("Take of an absent key: %v, %v", found, err)
	}
	ok(t, s.Set(ctx, "t", []byte("v"), time.Hour))
	if v, found, err := s.Take(ctx, "t"); err != nil || !found || string(v) != "v" {
		t.Fatalf("Take: %q, %v, %v", v, found, err)
	}
	want(t, s, "t", "", false)
	if _, found, _ := s.Take(ctx, "t"); found {
		t.Fatal("Take twice found the value twice")
	}
}

func touch(t *testing.T, s store.Store) {
	ctx := context.Background()
	if must[bool](t)(s.Touch(ctx, "k", time.Hour)) {
		t.Fatal("Touch of an absent key says it exists")
	}
	ok(t, s.Set(ctx, "k", []byte("v"), 0))
	if !must[bool](t)(s.Touch(ctx, "k", 0)) {
		t.Fatal("Touch of a key without expiry says it is absent")
	}
	if !must[bool](t)(s.Touch(ctx, "k", time.Millisecond)) {
		t.Fatal("Touch says the key is absent")
	}
	Eventually(t, "the touched key expires", func() bool { _, found, _ := s.Get(ctx, "k"); return !found })
	if must[bool](t)(s.Touch(ctx, "k", time.Hour)) {
		t.Fatal("Touch revived an expired key")
	}
}

func expiry(t *testing.T, s store.Store) {
	ctx := context.Background()
	for key, write := range map[string]func(key string) error{
		"e:set":    func(k string) error { return s.Set(ctx, k, []byte("v"), time.Millisecond) },
		"e:tiny":   func(k string) error { return s.Set(ctx, k, []byte("v"), time.Nanosecond) },
		"e:create": func(k string) error { _, err := s.Create(ctx, k, []byte("v"), time.Millisecond); return err },
		"e:swap": func(k string) error {
			if err := s.Set(ctx, k, []byte("v"), 0); err != nil {
				return err
			}
			_, err := s.Swap(ctx, k, []byte("v"), []byte("w"), time.Millisecond)
			return err
		},
	} {
		ok(t, write(key))
		Eventually(t, key+" expires", func() bool { _, found, _ := s.Get(ctx, key); return !found })
		if got := must[[]string](t)(s.Keys(ctx, key)); len(got) != 0 {
			t.Errorf("%s: Keys lists the expired key", key)
		}
		if _, found, _ := s.Take(ctx, key); found {
			t.Errorf("%s: Take found the expired key", key)
		}
		if must[bool](t)(s.Swap(ctx, key, []byte("v"), []byte("w"), 0)) {
			t.Errorf("%s: Swap found the expired key", key)
		}
		if !must[bool](t)(s.Create(ctx, key, []byte("new"), 0)) {
			t.Errorf("%s: Create was stopped by the expired key", key)
		}
		want(t, s, key, "new", true)
	}
}

// expiryReplaced lets a first expiry pass, which a later write or touch has
// replaced by none.
func expiryReplaced(t *testing.T, s store.Store) {
	ctx := context.Background()
	// Long enough that the second write comes in time even on a slow machine,
	// and checked to have done so.
	const first = 700 * time.Millisecond
	for range 20 {
		begin := time.Now()
		for _, k := range []string{"r:set", "r:swap", "r:touch", "r:marker"} {
			ok(t, s.Set(ctx, k, []byte("v"), first))
		}
		ok(t, s.Set(ctx, "r:set", []byte("v"), 0))
		swapped := must[bool](t)(s.Swap(ctx, "r:swap", []byte("v"), []byte("v"), 0))
		touched := must[bool](t)(s.Touch(ctx, "r:touch", 0))
		if time.Since(begin) > first/2 {
			continue
		}
		if !swapped || !touched {
			t.Fatal("a key was gone before its time")
		}
		Eventually(t, "the marker expires", func() bool { _, found, _ := s.Get(ctx, "r:marker"); return !found })
		for _, k := range []string{"r:set", "r:swap", "r:touch"} {
			want(t, s, k, "v", true)
		}
		return
	}
	t.Fatal("this machine is too slow to write seven times within 350ms, twenty times in a row")
}

func keys(t *testing.T, s store.Store) {
	ctx := context.Background()
	all := []string{"k:b", "k:a", "k:*", "k:?x", "k:[a]", `k:\`, "kk", "l:a"}
	for i := range 1200 { // more than a page of any backend
		all = append(all, fmt.Sprintf("many:%04d", i))
	}
	// At once, because the file store shares one write to disk among writers.
	if n := race(t, len(all), func(i int) (bool, error) { return s.Create(ctx, all[i], []byte("v"), time.Hour) }); n != len(all) {
		t.Fatalf("%d of %d keys were created", n, len(all))
	}
	check := func(prefix string, wantKeys ...string) {
		t.Helper()
		got := must[[]string](t)(s.Keys(ctx, prefix))
		if got == nil || !slices.Equal(got, wantKeys) && len(got)+len(wantKeys) > 0 {
			t.Errorf("Keys(%q) = %q; want %q", prefix, got, wantKeys)
		}
	}
	check("k:", "k:*", "k:?x", "k:[a]", `k:\`, "k:a", "k:b")
	check("k:*", "k:*")
	check("k:[a]", "k:[a]")
	check(`k:\`, `k:\`)
	check("none:")
	if got := must[[]string](t)(s.Keys(ctx, "many:")); len(got) != 1200 || !slices.IsSorted(got) {
		t.Errorf("Keys(many:) returned %d keys, sorted %v", len(got), slices.IsSorted(got))
	}
}

func badArguments(t *testing.T, s store.Store) {
	ctx := context.Background()
	for _, k := range []string{"", "a b", "a\n", "ключ", "a\x00"} {
		if err := s.Set(ctx, k, nil, 0); err == nil {
			t.Errorf("Set accepted the key %q", k)
		}
	}
	if err := s.Set(ctx, "a", nil, -time.Second); err == nil {
		t.Error("Set accepted a negative ttl")
	}
	if err := s.Set(ctx, "session:s3cr3t", nil, -time.Second); err == nil || bytes.Contains([]byte(err.Error()), []byte("s3cr3t")) {
		t.Errorf("the error shows the key: %v", err)
	}
}

func endedContext(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Set(ctx, "x", nil, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Set with an ended context: %v", err)
	}
	if _, _, err := s.Get(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get with an ended context: %v", err)
	}
	want(t, s, "x", "", false)
	if st := s.Status(); st.Degraded {
		t.Errorf("a caller that gave up made the store degraded: %+v", st)
	}
}

const racers = 50

// race runs n functions at once and returns how many said true.
func race(t *testing.T, n int, fn func(i int) (bool, error)) int {
	t.Helper()
	var wins atomic.Int32
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			won, err := fn(i)
			if err != nil {
				errs <- err
			}
			if won {
				wins.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	return int(wins.Load())
}

func createRace(t *testing.T, s store.Store) {
	ctx := context.Background()
	if n := race(t, racers, func(i int) (bool, error) { return s.Create(ctx, "k", []byte{byte(i)}, time.Hour) }); n != 1 {
		t.Fatalf("%d of %d created the key", n, racers)
	}
}

func swapRace(t *testing.T, s store.Store) {
	ctx := context.Background()
	ok(t, s.Set(ctx, "k", []byte("old"), 0))
	var winner atomic.Int32
	n := race(t, racers, func(i int) (bool, error) {
		won, err := s.Swap(ctx, "k", []byte("old"), fmt.Appendf(nil, "%d", i), time.Hour)
		if won {
			winner.Store(int32(i))
		}
		return won, err
	})
	if n != 1 {
		t.Fatalf("%d of %d swapped the value", n, racers)
	}
	want(t, s, "k", fmt.Sprint(winner.Load()), true)
}

func swapCounter(t *testing.T, s store.Store) {
	ctx := context.Background()
	ok(t, s.Set(ctx, "n", []byte("0"), 0))
	race(t, 8, func(int) (bool, error) {
		for done := 0; done < 10; {
			v, _, err := s.Get(ctx, "n")
			if err != nil {
				return false, err
			}
			var n int
			fmt.Sscan(string(v), &n)
			won, err := s.Swap(ctx, "n", v, fmt.Appendf(nil, "%d", n+1), 0)
			if err != nil {
				return false, err
			}
			if won {
				done++
			}
		}
		return true, nil
	})
	want(t, s, "n", "80", true)
}

func takeRace(t *testing.T, s store.Store) {
	ctx := context.Background()
	ok(t, s.Set(ctx, "k", []byte("v"), time.Hour))
	if n := race(t, racers, func(int) (bool, error) { _, found, err := s.Take(ctx, "k"); return found, err }); n != 1 {
		t.Fatalf("%d of %d took the value", n, racers)
	}
}

func status(t *testing.T, s store.Store) {
	st := s.Status()
	if st.Backend == "" || st.Degraded || st.Error != "" || st.Since.IsZero() || st.Since.After(time.Now()) {
		t.Fatalf("a working store says %+v", st)
	}
}

func closed(t *testing.T, s store.Store) {
	ctx := context.Background()
	ch := must[<-chan []byte](t)(s.Subscribe(ctx, "ch"))
	ok(t, s.Close())
	select {
	case _, open := <-ch:
		if open {
			t.Fatal("a message came from nowhere")
		}
	case <-time.After(patience):
		t.Fatal("Close did not end the subscription")
	}
	_, _, getErr := s.Get(ctx, "k")
	_, createErr := s.Create(ctx, "k", nil, 0)
	_, swapErr := s.Swap(ctx, "k", nil, nil, 0)
	_, _, takeErr := s.Take(ctx, "k")
	_, touchErr := s.Touch(ctx, "k", 0)
	_, keysErr := s.Keys(ctx, "k")
	_, subErr := s.Subscribe(ctx, "ch")
	for name, err := range map[string]error{
		"Get": getErr, "Set": s.Set(ctx, "k", nil, 0), "Create": createErr, "Swap": swapErr, "Take": takeErr,
		"Delete": s.Delete(ctx, "k"), "Touch": touchErr, "Keys": keysErr, "Subscribe": subErr,
	} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s on a closed store: %v; want ErrUnavailable", name, err)
		}
	}
	ok(t, s.Close())
}
