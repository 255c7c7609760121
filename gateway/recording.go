package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A run that has waited for a person is kept in the store: a record of what it
// called, and, sealed, its recording. So its sandbox process can be let go, and
// any replica can go on with it for a day, also after all of them were killed.
//
// Who goes on with a run owns its record: every write replaces exactly the
// record that the writer wrote last. A process whose run went on elsewhere finds
// its record replaced and sends nothing more.

const (
	keptFor = 24 * time.Hour
	// A run whose recording grows beyond it stays in its process.
	recordingMost = 16 << 20
)

// runRecord is what the store keeps of a run that has waited.
type runRecord struct {
	User   string     `json:"user"`
	Made   []madeCall `json:"made"`
	Before []madeCall `json:"before,omitempty"` // of lives whose calls have other numbers now
	Ended  string     `json:"ended,omitempty"`  // why it is over; empty: it goes on
	Held   bool       `json:"held,omitempty"`   // a process has it in memory
	Life   int        `json:"life"`             // how often it was begun
	Chunks int        `json:"chunks,omitempty"` // of its recording; 0: there is none
	Epoch  int        `json:"epoch,omitempty"`  // how often the recording was begun anew
	Stage  int        `json:"stage,omitempty"`  // how many plans it has made that were applied
	Plan   string     `json:"plan,omitempty"`   // it waits for this plan, and goes on with nothing else
}

// recordingHead is the first chunk of a recording.
type recordingHead struct {
	Version string `json:"version"`
	Code    string `json:"code"`
	Seed    uint64 `json:"seed"`
	Start   int64  `json:"start"`
}

var (
	errElsewhere = errors.New("the run went on in another process of the portal; nothing more was sent here")
	errLetGo     = errors.New("the run was let go")
)

// recording is that of a run in this process.
type recording struct {
	head recordingHead

	mu     sync.Mutex
	events []codemode.Event // not yet in the store
	bytes  int
	over   bool // too large: it is not kept any more

	keep   sync.Mutex // one writer at a time
	stored []byte     // the record as this process wrote it; nil: there is none
	life   int
	epoch  int // see runRecord
	chunks int
	plan   string // that the run waits for
	stage  int    // how many plans it has made, and one
	gone   bool   // the run is another process's, or nobody's: write nothing
}

func newRecording(version, code string) *recording {
	return &recording{head: recordingHead{Version: version, Code: code, Seed: rand.Uint64(), Start: time.Now().UnixMilli()}, life: 1, stage: 1}
}

// Add makes it a codemode.Journal.
func (c *recording) Add(ev codemode.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes += len(ev.Data) + len(ev.Name) + 64; c.bytes > recordingMost {
		c.over, c.events = true, nil
	}
	if !c.over {
		c.events = append(c.events, ev)
	}
}

// whole reports whether the run can be run again from what was recorded.
func (c *recording) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over
}

// version is that of everything a recording depends on.
func (g *Gateway) runVersion() string { return g.opt.Version + " " + g.engine }

// keepRecord writes the record of a run anew, and what is new of its recording.
// ended says why it is over, if it is; held, whether it stays in memory here.
// The error is errElsewhere when it went on in another process, or the store's.
func (g *Gateway) keepRecord(ctx context.Context, x *run, ended string, held bool) error {
	c := x.recording
	c.keep.Lock()
	defer c.keep.Unlock()
	if c.gone {
		return errElsewhere
	}
	if ended == "" {
		g.inherit(ctx, runReads(x.id), x.req.grant)
		if err := g.keepEvents(ctx, x); err != nil {
			return err
		}
	}
	x.mu.Lock()
	rec := runRecord{User: x.req.who.ID, Made: append([]madeCall(nil), x.made...), Before: x.earlier, Ended: ended, Held: held, Life: c.life, Chunks: c.chunks, Epoch: c.epoch, Stage: c.stage - 1, Plan: c.plan}
	x.mu.Unlock()
	if !c.whole() {
		rec.Chunks = 0
	}
	raw := wire.Encode(rec)
	var done bool
	var err error
	if c.stored == nil {
		done, err = g.opt.Store.Create(ctx, "run:"+x.id, raw, keptFor)
	} else {
		done, err = g.opt.Store.Swap(ctx, "run:"+x.id, c.stored, raw, keptFor)
	}
	switch {
	case err != nil:
		return fmt.Errorf("keep what run %s has done: %w", x.id, err)
	case !done:
		if _, found, err := g.opt.Store.Get(ctx, "run:"+x.id); err == nil && !found {
			// The store lost it, and nobody can have gone on with it. What was
			// recorded is lost, too.
			c.mu.Lock()
			c.over, c.events = true, nil
			c.mu.Unlock()
			rec.Chunks = 0
			raw = wire.Encode(rec)
			done, err = g.opt.Store.Create(ctx, "run:"+x.id, raw, keptFor)
			if err != nil {
				return fmt.Errorf("keep what run %s has done: %w", x.id, err)
			}
		}
		if !done {
			c.gone = true
			x.cancel(errElsewhere)
			return errElsewhere
		}
	}
	c.stored = raw
	if ended != "" || !held {
		c.gone = true
	}
	return nil
}

// keepEvents writes what is not yet in the store as the next chunk. The caller
// holds keep.
func (g *Gateway) keepEvents(ctx context.Context, x *run) error {
	c := x.recording
	if g.opt.Vault == nil {
		return nil
	}
	c.mu.Lock()
	events, over := c.events, c.over
	c.events = nil
	c.mu.Unlock()
	if over {
		return nil
	}
	if c.chunks == 0 {
		if err := g.keepChunk(ctx, x.id, c.epoch, 0, c.head); err != nil {
			c.putBack(events)
			return err
		}
		c.chunks = 1
	}
	if len(events) == 0 {
		return nil
	}
	if err := g.keepChunk(ctx, x.id, c.epoch, c.chunks, events); err != nil {
		c.putBack(events)
		return err
	}
	c.chunks++
	return nil
}

func (c *recording) putBack(events []codemode.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.events = append(events, c.events...)
	}
}

func chunkKey(id string, epoch, n int) string {
	return fmt.Sprintf("run-recording:%s:%d:%d", id, epoch, n)
}

// keepChunk seals and stores one chunk. It may overwrite: a process that died
// may have left one that no record counts.
func (g *Gateway) keepChunk(ctx context.Context, id string, epoch, n int, v any) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(wire.Encode(v)); err != nil {
		return fmt.Errorf("compress the recording of run %s: %w", id, err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress the recording of run %s: %w", id, err)
	}
	sealed, err := g.recordings().Seal(ctx, chunkKey(id, epoch, n), b.Bytes())
	if err != nil {
		return fmt.Errorf("seal the recording of run %s: %w", id, err)
	}
	if err := g.opt.Store.Set(ctx, chunkKey(id, epoch, n), []byte(sealed), keptFor+time.Hour); err != nil {
		return fmt.Errorf("keep the recording of run %s: %w", id, err)
	}
	return nil
}

func (g *Gateway) recordings() vault.Box { return g.opt.Vault.Box("run recording") }

func (g *Gateway) chunk(ctx context.Context, id string, epoch, n int, v any) error {
	sealed, found, err := g.opt.Store.Get(ctx, chunkKey(id, epoch, n))
	if err != nil {
		return err
	}
	if !found {
		return errors.New("a part of its recording is missing")
	}
	b, _, err := g.recordings().Open(ctx, chunkKey(id, epoch, n), string(sealed))
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(z, 2*recordingMost))
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// revive goes on with a run that no process holds, from its recording. Nil
// without an error: there is no recording of it that can be used, and lostRun
// says the rest.
func (g *Gateway) revive(ctx context.Context, r *request, id string) (*run, error) {
	raw, found, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil || !found || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID || rec.Ended != "" || rec.Plan != "" || rec.Chunks == 0 || g.opt.Vault == nil {
		return nil, nil
	}
	head, events, err := g.recorded(ctx, id, rec)
	if err != nil {
		return nil, g.cannotRevive(id, err)
	}
	if head.Version != g.runVersion() {
		g.log.Info("a paused run cannot go on: it was begun by another version of the portal", "run", id, "version", head.Version)
		return nil, nil
	}
	rec.Life++
	rec.Held = true
	mine := wire.Encode(rec)
	won, err := g.opt.Store.Swap(ctx, "run:"+id, raw, mine, keptFor)
	switch {
	case err != nil:
		return nil, errors.New("The run could not be continued, the store cannot be reached: try again shortly.")
	case !won:
		return nil, errors.New("another request is already continuing this run: wait for its answer")
	}
	g.inherit(ctx, r.grant, runReads(id))
	x := g.runs.again(id, r, rec, head, mine, events)
	x.answeredAlready(ctx, r)
	g.log.Info("a paused run goes on from its recording", "run", id, "life", rec.Life, "events", len(events))
	g.runs.begin(x, &codemode.Recording{Version: head.Version, Seed: head.Seed, Start: head.Start, Events: events})
	return x, nil
}

// recorded reads the recording of a run.
func (g *Gateway) recorded(ctx context.Context, id string, rec runRecord) (head recordingHead, events []codemode.Event, err error) {
	if err := g.chunk(ctx, id, rec.Epoch, 0, &head); err != nil {
		return head, nil, err
	}
	for n := 1; n < rec.Chunks; n++ {
		var some []codemode.Event
		if err := g.chunk(ctx, id, rec.Epoch, n, &some); err != nil {
			return head, nil, err
		}
		events = append(events, some...)
	}
	return head, events, nil
}

// again makes a run that goes on from its recording; mine is its record, which
// this process has just written.
func (s *runs) again(id string, r *request, rec runRecord, head recordingHead, mine []byte, events []codemode.Event) *run {
	c := &recording{head: head, stored: mine, life: rec.Life, epoch: rec.Epoch, chunks: rec.Chunks, stage: rec.Stage + 1}
	for _, ev := range events {
		c.bytes += len(ev.Data) + len(ev.Name) + 64
	}
	x := s.make(id, r, c)
	x.made, x.earlier, x.waited = rec.Made, rec.Before, true
	return x
}

func (g *Gateway) cannotRevive(id string, err error) error {
	g.log.Warn("a paused run cannot go on from its recording", "run", id, "error", err)
	if errors.Is(err, vault.ErrUnknownKey) || errors.Is(err, vault.ErrSealed) {
		return nil
	}
	return errors.New("The run could not be continued now: its recording cannot be read. Try again shortly.")
}

// answeredAlready records the answers that a 2026-07-28 client brings with the
// request that revives the run: it was asked in the run's life before.
func (x *run) answeredAlready(ctx context.Context, r *request) {
	if !r.modern || r.params.String("requestState") != runPrefix+x.id {
		return
	}
	responses, err := wire.ParseObject(r.params.Get("inputResponses"))
	if err != nil {
		return
	}
	for _, res := range responses {
		id, ok := bytes.CutPrefix([]byte(res.Key), []byte("approval-"))
		if !ok {
			continue
		}
		a, err := x.g.approvals.Get(ctx, string(id))
		if err != nil || a.State != writeguard.Pending || a.Run != x.id || !a.OwnedBy(r.who) || !r.takesForm(a) {
			continue
		}
		if err := x.g.decideByAnswer(ctx, &passage{req: r}, a, res.Value); err != nil {
			x.g.log.Warn("a decision could not be recorded", "approval", a.ID, "error", err)
		}
	}
}
