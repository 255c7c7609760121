package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// session is one 2025 session. The record lives in the store, so that any
// replica and a restarted portal can answer for it; each replica keeps those
// it has served in memory, so that they go on while the store is away.
type session struct {
	sessionRecord
	key     string    // store key
	id      string    // as the client knows it
	dirty   bool      // what is known here is not yet in the store
	read    time.Time // when it was last looked for in the store
	checked time.Time // when the store last said what it has of it
}

// sessionRecord is what the store holds of a session.
type sessionRecord struct {
	User         string          `json:"user"`
	Version      string          `json:"version"`
	ClientInfo   json.RawMessage `json:"clientInfo,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Level        string          `json:"level,omitempty"`
	Created      time.Time       `json:"created"`
	Seen         time.Time       `json:"seen"`
	Ended        bool            `json:"ended,omitempty"` // a mark: no replica may bring it back
}

// endedFor is how long the mark of an ended session stays. A replica that has
// not looked into the store for that long may not restore what is missing.
const endedFor = time.Hour

// sessions finds, makes and ends sessions.
type sessions struct {
	store store.Store
	log   *slog.Logger
	idle  func() time.Duration
	limit func() int
	now   func() time.Time

	// busy reports whether a session has a request or a stream open here, and so
	// is not idle; nil: none has.
	busy func(key string) bool

	ended func(user, key string) // told of sessions that ended here without their client
	tell  func(user, key string) // tells the other replicas of such an end

	mu    sync.Mutex
	known map[string]*session // by key
	made  map[string]int      // sessions made here since the user's were counted
	back  time.Time           // when the store came back; zero: it was never away
}

var (
	errNoSession          = errors.New("this session is not known here: it ended, or was idle too long. Start again with initialize, without a session id")
	errSessionUnavailable = errors.New("the session store cannot be reached and this portal process has not served the session yet: try again shortly")
)

// sessionKey is user first, so that one user's sessions can be listed. Neither
// the id nor the user stands in it in the clear.
func sessionKey(user, id string) string {
	return "mcp-session:" + shortHash(user) + ":" + shortHash(id)
}

func shortHash(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:16])
}

func randomID() string { return rand.Text() }

// create makes a session. When the user has too many, the one idle longest
// ends.
func (s *sessions) create(ctx context.Context, rec sessionRecord) *session {
	now := s.now()
	rec.Created, rec.Seen = now, now
	id := randomID()
	n := &session{sessionRecord: rec, id: id, key: sessionKey(rec.User, id), read: now, checked: now}
	s.mu.Lock()
	s.known[n.key] = n
	s.mu.Unlock()
	if err := s.store.Set(ctx, n.key, wire.Encode(rec), s.idle()); err != nil {
		s.mu.Lock()
		n.dirty = true
		s.mu.Unlock()
		s.log.Warn("session kept in memory until the store is back", "error", err)
	}
	// Counting asks the store for all keys of the user, so not every time.
	s.mu.Lock()
	if s.made == nil {
		s.made = map[string]int{}
	}
	s.made[rec.User]++
	count := s.made[rec.User] > s.limit()/4
	if count {
		delete(s.made, rec.User)
	}
	s.mu.Unlock()
	if count {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			s.trim(ctx, rec.User)
		}()
	}
	return n
}

// get finds a session by its id and checks that it is the user's.
func (s *sessions) get(ctx context.Context, user, id string) (*session, error) {
	key := sessionKey(user, id)
	now := s.now()
	busy := s.isBusy(key)
	s.mu.Lock()
	n, ok := s.known[key]
	if ok && !busy && now.Sub(n.Seen) > s.idle() {
		delete(s.known, key)
		n, ok = nil, false
	}
	if ok && now.Sub(n.read) < 30*time.Second {
		n.Seen = now
		s.mu.Unlock()
		return n, nil
	}
	s.mu.Unlock()
	raw, found, err := s.store.Get(ctx, key)
	if err != nil {
		if !ok {
			return nil, errSessionUnavailable
		}
		// The store is away; status and log say so. What is known here serves.
		s.mu.Lock()
		n.Seen, n.read = now, now
		s.mu.Unlock()
		return n, nil
	}
	if !found {
		return s.missing(ctx, n, key)
	}
	var rec sessionRecord
	if err := json.Unmarshal(raw, &rec); err != nil || rec.User != user || rec.Ended {
		s.forget(key)
		return nil, errNoSession
	}
	s.mu.Lock()
	if n = s.known[key]; n == nil {
		n = &session{sessionRecord: rec, id: id, key: key}
		s.known[key] = n
	} else if !n.dirty {
		n.sessionRecord = rec // what another replica has changed
	}
	n.Seen, n.read, n.checked = now, now, now
	updated := wire.Encode(n.sessionRecord)
	s.mu.Unlock()
	// Writing now and then, not on every request, is enough for idle time. Only
	// over what was read: a session ended or changed meanwhile stays so.
	swapped, err := s.store.Swap(ctx, key, raw, updated, s.idle())
	if err != nil {
		s.log.Warn("session's last use could not be stored", "error", err)
	}
	switch {
	case swapped:
		s.clean(n, updated)
	case err == nil:
		// It changed since it was read, and may just have been ended.
		s.mu.Lock()
		n.read = time.Time{}
		s.mu.Unlock()
		raw, found, err := s.store.Get(ctx, key)
		if err == nil && (!found || json.Unmarshal(raw, &rec) == nil && rec.Ended) {
			s.forget(key)
			return nil, errNoSession
		}
	}
	return n, nil
}

// missing decides about a session that the store says it does not have; n is
// what is known of it here, or nil. Sessions that end leave a mark, so the
// store has lost this one (flushed, restarted without data) or never had it.
func (s *sessions) missing(ctx context.Context, n *session, key string) (*session, error) {
	if n != nil {
		now := s.now()
		s.mu.Lock()
		restore := now.Sub(n.checked) < endedFor
		s.mu.Unlock()
		if restore {
			err := s.flush(ctx, n)
			if errors.Is(err, errNoSession) {
				return nil, err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			n.Seen, n.read = now, now
			if err == nil {
				n.checked = now
			}
			return n, nil // should the store just have gone away, what is known here serves
		}
	}
	if s.recovering() {
		// Another replica may know it and write it back in a moment.
		return nil, errSessionUnavailable
	}
	s.forget(key)
	return nil, errNoSession
}

// record is a copy of what is known of the session.
func (s *sessions) record(n *session) sessionRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.sessionRecord
}

// update changes the record and stores it, now or when the store is back.
func (s *sessions) update(ctx context.Context, n *session, change func(*sessionRecord)) {
	s.mu.Lock()
	change(&n.sessionRecord)
	n.dirty = true
	s.mu.Unlock()
	if err := s.flush(ctx, n); err != nil && !errors.Is(err, errNoSession) {
		s.log.Warn("session kept in memory until the store is back", "error", err)
	}
}

// end ends a session on every replica.
func (s *sessions) end(ctx context.Context, key string) error {
	s.forget(key)
	return s.store.Set(ctx, key, wire.Encode(sessionRecord{Ended: true}), endedFor)
}

// count is how many sessions this replica keeps in memory.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// forget drops what this replica knows of a session.
func (s *sessions) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

// recovering reports whether the store came back a moment ago, so that other
// replicas may still be writing what they kept.
func (s *sessions) recovering() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.back.IsZero() && s.now().Sub(s.back) < 15*time.Second
}

// storeBack notes that the store is back after it was away.
func (s *sessions) storeBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = s.now()
}

// flush writes what is known here. Over the mark of an ended session nothing
// is written: the session is forgotten, with errNoSession. Any other error
// means that the store cannot be reached and the session stays dirty.
func (s *sessions) flush(ctx context.Context, n *session) error {
	for range 10 {
		old, found, err := s.store.Get(ctx, n.key)
		if err != nil {
			return err
		}
		if found {
			var rec sessionRecord
			if json.Unmarshal(old, &rec) == nil && rec.Ended {
				s.forget(n.key)
				return errNoSession
			}
		}
		s.mu.Lock()
		raw := wire.Encode(n.sessionRecord)
		s.mu.Unlock()
		var done bool
		if found {
			done, err = s.store.Swap(ctx, n.key, old, raw, s.idle())
		} else {
			done, err = s.store.Create(ctx, n.key, raw, s.idle())
		}
		if err != nil {
			return err
		}
		if done {
			s.clean(n, raw)
			return nil
		}
		// Another replica was faster; what it wrote counts in the next turn.
	}
	return errors.New("the record of the session changes too fast to be written")
}

// clean notes that raw, what was known of the session, is in the store.
func (s *sessions) clean(n *session, raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(raw, wire.Encode(n.sessionRecord)) {
		n.dirty = false
	}
}

func (s *sessions) isBusy(key string) bool { return s.busy != nil && s.busy(key) }

// sweep stores what could not be stored and forgets what is idle too long. What
// is busy is kept, in the store as well.
func (s *sessions) sweep(ctx context.Context) {
	now := s.now()
	var dirty, over, used []*session
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.known))
	s.mu.Unlock()
	for _, n := range all {
		busy := s.isBusy(n.key)
		s.mu.Lock()
		if busy {
			n.Seen = now
			if age := now.Sub(n.checked); age > min(s.idle(), endedFor)/4 && age < endedFor && !n.dirty {
				used = append(used, n)
			}
		}
		if now.Sub(n.Seen) > s.idle() {
			delete(s.known, n.key)
			over = append(over, n)
		} else if n.dirty {
			dirty = append(dirty, n)
		}
		s.mu.Unlock()
	}
	for _, n := range dirty {
		if err := s.flush(ctx, n); errors.Is(err, errNoSession) {
			s.ended(n.User, n.key)
		} else if err != nil {
			break // the store is away again; status and log say so
		}
	}
	for _, n := range used {
		s.keep(ctx, n)
	}
	for _, n := range over {
		s.ended(n.User, n.key)
	}
}

// keep lets the record of a busy session live on in the store.
func (s *sessions) keep(ctx context.Context, n *session) {
	raw, found, err := s.store.Get(ctx, n.key)
	if err != nil {
		return // status and log say so
	}
	var rec sessionRecord
	switch {
	case !found:
		err = s.flush(ctx, n)
	case json.Unmarshal(raw, &rec) == nil && !rec.Ended:
		rec.Seen = s.now()
		_, err = s.store.Swap(ctx, n.key, raw, wire.Encode(rec), s.idle()) // who was faster has kept it
	default:
		err = errNoSession
		s.forget(n.key)
	}
	if errors.Is(err, errNoSession) {
		s.ended(n.User, n.key)
	} else if err == nil {
		s.mu.Lock()
		n.checked = s.now()
		s.mu.Unlock()
	}
}

// trim ends the sessions of a user beyond the limit, idle longest first.
func (s *sessions) trim(ctx context.Context, user string) {
	keys, err := s.store.Keys(ctx, "mcp-session:"+shortHash(user)+":")
	if err != nil || len(keys) <= s.limit() {
		return
	}
	type aged struct {
		key  string
		seen time.Time
	}
	var all []aged
	for _, k := range keys {
		raw, ok, err := s.store.Get(ctx, k)
		var rec sessionRecord
		if err != nil || !ok || json.Unmarshal(raw, &rec) != nil || rec.Ended {
			continue
		}
		busy := s.isBusy(k)
		s.mu.Lock()
		if n := s.known[k]; busy {
			rec.Seen = s.now()
		} else if n != nil && n.Seen.After(rec.Seen) {
			rec.Seen = n.Seen
		}
		s.mu.Unlock()
		all = append(all, aged{k, rec.Seen})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].seen.Before(all[j].seen) })
	if len(all) <= s.limit() {
		return
	}
	for i := 0; i < len(all)-s.limit(); i++ {
		if err := s.end(ctx, all[i].key); err != nil {
			s.log.Warn("a session beyond the user's limit could not be ended", "error", err)
			continue
		}
		s.ended(user, all[i].key)
		s.tell(user, all[i].key)
	}
	s.log.Info("sessions beyond the user's limit ended", "user", shortHash(user), "ended", len(all)-s.limit())
}
