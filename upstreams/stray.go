package upstreams

import (
	"encoding/json"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// A question that comes outside the stream of a call does not say which call it
// belongs to: over stdio and SSE none does, and over Streamable HTTP those of some
// servers. It may only go where all calls are of one user and session, and
// there to any of them: the newest that can be asked. When that call ends first,
// the question may have been another's, so it goes on to the next.

// strayQuestion is such a question under way.
type strayQuestion struct {
	m      wire.Message
	reply  func(wire.Message)
	others []*live // calls it may go to, oldest first; none began after it came
	held   []*live // whose idle deadlines rest meanwhile

	// Guarded by session.strayMu.
	at        *live
	withdrawn bool
}

// putStray puts a question to one of the calls.
func (s *session) putStray(m wire.Message, calls []*live, reply func(wire.Message)) {
	q := &strayQuestion{m: m, reply: reply, others: calls, held: calls}
	for _, l := range q.held {
		l.watch.hold() // each may be the one that waits for the answer
	}
	s.strayMu.Lock()
	if s.strays == nil {
		s.strays = map[string]*strayQuestion{}
	}
	s.strays[string(m.ID)] = q
	s.strayMu.Unlock()
	s.next(q, wire.Errorf(wire.CodeMethodNotFound, "%s is not available during this call", m.Method))
}

// next puts a question to the next call that is still under way. Where none is
// left it is refused, with what the last one said.
func (s *session) next(q *strayQuestion, last *wire.Error) {
	s.strayMu.Lock()
	defer s.strayMu.Unlock()
	for len(q.others) > 0 && !q.withdrawn {
		l := q.others[len(q.others)-1]
		q.others = q.others[:len(q.others)-1]
		q.at = l
		if l.put(q.m, func(res json.RawMessage, e *wire.Error, ended error) { s.answered(q, res, e, ended) }) {
			return
		}
	}
	s.doneLocked(q, wire.Message{ID: q.m.ID, Error: last})
}

// answered takes what became of a question at one call.
func (s *session) answered(q *strayQuestion, res json.RawMessage, e *wire.Error, ended error) {
	if e != nil && (ended != nil || e.Code == wire.CodeMethodNotFound) { // ended, or called from code
		s.next(q, e)
		return
	}
	s.strayMu.Lock()
	defer s.strayMu.Unlock()
	s.doneLocked(q, wire.Message{ID: q.m.ID, Result: res, Error: e})
}

// doneLocked ends a question, with an answer unless the server took it back.
func (s *session) doneLocked(q *strayQuestion, answer wire.Message) {
	if s.strays[string(q.m.ID)] == q {
		delete(s.strays, string(q.m.ID))
	}
	for _, l := range q.held {
		l.watch.release()
	}
	if !q.withdrawn {
		q.reply(answer)
	}
}

// withdrawStray ends a question that the server takes back. It reports whether
// there is one.
func (s *session) withdrawStray(id string) bool {
	s.strayMu.Lock()
	q := s.strays[id]
	if q == nil {
		s.strayMu.Unlock()
		return false
	}
	q.withdrawn = true
	at := q.at
	s.strayMu.Unlock()
	if at != nil {
		at.withdraw(id)
	}
	return true
}

// orphan takes a question that came while no call was in flight. Some servers
// ask as soon as a session begins: the call that it was begun for is about to
// come.
func (s *session) orphan(m wire.Message, reply func(wire.Message)) {
	for end := time.Now().Add(2 * time.Second); s.personal && time.Now().Before(end) && s.life.Err() == nil; time.Sleep(10 * time.Millisecond) {
		calls, mixed := s.inflight.ofOne()
		if mixed {
			break
		}
		if calls != nil {
			s.putStray(m, calls, reply)
			return
		}
	}
	s.nobodys(m, reply)
}

// nobodys refuses a question of which nobody can tell whose it is. It does not
// wait until one session is left: that may be the wrong one.
func (s *session) nobodys(m wire.Message, reply func(wire.Message)) {
	s.log.Info("a question of the server cannot be tied to one call: refused", "method", s.peer.clean(m.Method))
	reply(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeMethodNotFound, "%s cannot be tied to a call: ask while one call is in flight", m.Method)})
}
