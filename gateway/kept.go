package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// Bounds of what is kept for a user. The oldest goes first.
const (
	valueKeptFor = 15 * time.Minute
	keptMost     = 8 << 20  // bytes of one value
	keptOfUser   = 24 << 20 // bytes of all of a user's
	keptEntries  = 20       // of a user
	keptPrefix   = "res_"
)

// kept are values that were too large for an answer, so that later code of the
// same user can read them, on any replica.
type kept struct {
	store store.Store
	log   *slog.Logger
	now   func() time.Time
}

// keptEntry is one line of a user's list.
type keptEntry struct {
	ID    string    `json:"id"`
	Bytes int       `json:"bytes"`
	Until time.Time `json:"until"`
}

// userKey is a user id as a part of a key, which is ASCII.
func userKey(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}

func keptKey(user, id string) string { return "kept:" + userKey(user) + ":" + id }

// put keeps a JSON value and returns its id. reads are the taints of who has it:
// they come along to who reads it.
func (k *kept) put(ctx context.Context, user string, reads writeguard.Labels, value json.RawMessage) (string, error) {
	if len(value) > keptMost {
		return "", fmt.Errorf("it has %d bytes, at most %d are kept", len(value), keptMost)
	}
	id := keptPrefix + randomID()
	if err := k.store.Set(ctx, keptKey(user, id), append(fmt.Appendf(nil, "%d ", reads), value...), valueKeptFor); err != nil {
		return "", err
	}
	if err := k.list(ctx, user, keptEntry{ID: id, Bytes: len(value), Until: k.now().Add(valueKeptFor)}); err != nil {
		// Without the list nobody would count it.
		_ = k.store.Delete(ctx, keptKey(user, id))
		return "", err
	}
	return id, nil
}

// list adds a line to the user's list, and deletes what is too much.
func (k *kept) list(ctx context.Context, user string, e keptEntry) error {
	key := "kept-of:" + userKey(user)
	for try := range 50 {
		if try > 0 { // another answer of the user was faster
			time.Sleep(rand.N(time.Duration(try) * time.Millisecond))
		}
		old, had, err := k.store.Get(ctx, key)
		if err != nil {
			return err
		}
		var entries []keptEntry
		if had {
			if err := json.Unmarshal(old, &entries); err != nil {
				k.log.Warn("the list of kept values cannot be read and is begun anew", "error", err)
				entries = nil
			}
		}
		var live []keptEntry
		size := e.Bytes
		for _, x := range entries {
			if x.Until.After(k.now()) {
				live = append(live, x)
				size += x.Bytes
			}
		}
		var gone []keptEntry
		for len(live) > 0 && (len(live)+1 > keptEntries || size > keptOfUser) {
			size -= live[0].Bytes
			gone, live = append(gone, live[0]), live[1:]
		}
		next := wire.Encode(append(live, e))
		done := false
		if had {
			done, err = k.store.Swap(ctx, key, old, next, valueKeptFor)
		} else {
			done, err = k.store.Create(ctx, key, next, valueKeptFor)
		}
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		for _, x := range gone {
			if err := k.store.Delete(ctx, keptKey(user, x.ID)); err != nil {
				k.log.Warn("a kept value could not be deleted and expires by itself", "error", err)
			}
		}
		return nil
	}
	return errors.New("too many answers at once")
}

// read answers codemode.result(id, {path, from, to}). reads are the taints that
// come with it.
func (k *kept) read(ctx context.Context, user string, args []json.RawMessage) (value json.RawMessage, reads writeguard.Labels, err error) {
	var id string
	var opt struct {
		Path string `json:"path"`
		From *int   `json:"from"`
		To   *int   `json:"to"`
	}
	bad := func(format string, a ...any) error {
		return &codemode.HostError{Code: "invalid_arguments", Message: fmt.Sprintf(format, a...)}
	}
	if len(args) == 0 || json.Unmarshal(args[0], &id) != nil || !strings.HasPrefix(id, keptPrefix) {
		return nil, 0, bad(`codemode.result takes the id that an answer named, such as "res_…".`)
	}
	if len(args) > 1 {
		d := json.NewDecoder(bytes.NewReader(args[1]))
		d.DisallowUnknownFields()
		if err := d.Decode(&opt); err != nil {
			return nil, 0, bad(`codemode.result takes {path: "a.b", from: 0, to: 100} as its options: %v.`, err)
		}
	}
	raw, ok, err := k.store.Get(ctx, keptKey(user, id))
	if err != nil {
		return nil, 0, &codemode.HostError{Code: "unavailable", Message: "The kept value cannot be read, the store cannot be reached: try this call again in a moment."}
	}
	if !ok {
		return nil, 0, &codemode.HostError{Code: "gone", Message: fmt.Sprintf("There is no kept value %q of yours: values are kept for %d minutes, and only the latest %d. Get the data again by reading calls.", bounded(id, 60), int(valueKeptFor.Minutes()), keptEntries)}
	}
	digits, value, _ := bytes.Cut(raw, []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 8)
	if err != nil {
		return nil, 0, &codemode.HostError{Code: "gone", Message: fmt.Sprintf("The kept value %q cannot be read any more: get the data again by reading calls.", bounded(id, 60))}
	}
	reads = writeguard.Labels(n)
	if opt.Path == "" && opt.From == nil && opt.To == nil {
		return value, reads, nil
	}
	part, err := partOf(value, opt.Path, opt.From, opt.To)
	if err != nil {
		return nil, 0, bad("codemode.result(%q): %v.", id, err)
	}
	return part, reads, nil
}

// partOf is what stands at a path of a value, and of a list or text the part
// from one place up to another.
func partOf(value json.RawMessage, path string, from, to *int) (json.RawMessage, error) {
	if path != "" {
		for _, name := range strings.Split(path, ".") {
			next, err := member(value, name)
			if err != nil {
				return nil, err
			}
			value = next
		}
	}
	if from == nil && to == nil {
		return value, nil
	}
	begin, end := 0, int(^uint(0)>>1)
	if from != nil {
		begin = *from
	}
	if to != nil {
		end = *to
	}
	if begin < 0 || end < begin {
		return nil, fmt.Errorf("from and to are places from 0 on, from no larger than to")
	}
	switch value[0] {
	case '[':
		return items(value, begin, end)
	case '"':
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return nil, err
		}
		return wire.Quote(runesOf(s, begin, end)), nil
	}
	return nil, fmt.Errorf("from and to are for lists and texts, and at %q is %s", path, bounded(string(value), 40))
}

func runesOf(s string, begin, end int) string {
	n, first := 0, len(s)
	for i := range s {
		if n == begin {
			first = i
		}
		if n == end {
			return s[min(first, i):i]
		}
		n++
	}
	if utf8.RuneCountInString(s) <= begin {
		return ""
	}
	return s[first:]
}

// member is one member of an object or list, the others are passed over.
func member(value json.RawMessage, name string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	var names []string
	for i := 0; d.More() && (t == json.Delim('{') || t == json.Delim('[')); i++ {
		key := fmt.Sprint(i)
		if t == json.Delim('{') {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ = k.(string)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		if key == name {
			return v, nil
		}
		if len(names) < 12 {
			names = append(names, bounded(key, 40))
		}
	}
	return nil, fmt.Errorf("there is no %q in it; there is %s", bounded(name, 60), orNone(names))
}

// items are some items of a list.
func items(value json.RawMessage, begin, end int) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'['}
	for i := 0; d.More() && i < end; i++ {
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		if i < begin {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']'), nil
}
