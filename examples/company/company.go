package company

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options of a Company. The zero value is the company without outage and
// without artificial latency, logging nothing.
type Options struct {
	// Outage makes the first three tool calls of every run to the crm server
	// lose their connection.
	Outage bool
	// Latency makes tools take the time the fixture gives them (tracker
	// issue_get: 150 ms). Without it they answer at once.
	Latency bool
	// Log receives one line per call at debug level and what the servers log.
	// Nil discards.
	Log *slog.Logger
}

// Company is the eight servers over one state. Its methods may be called
// concurrently.
type Company struct {
	log     *slog.Logger
	seed    *fixture // never changed
	logs    func() ([]logLine, error)
	run     atomic.Pointer[run]
	resets  sync.Mutex // one reset at a time, so that run numbers are distinct
	servers map[string]*mcp.Server
	handler http.Handler
	// sleep waits for the latency of a tool, or returns the error of ctx.
	sleep func(ctx context.Context, d time.Duration) error
}

// New returns a company at the start of its first run. It panics if the state
// embedded in the program cannot be read, which is a fault of the build and of
// nothing at run time.
func New(o Options) *Company {
	seed, err := loadFixture()
	if err != nil {
		panic(fmt.Errorf("company: %w; build the program again from intact sources", err))
	}
	c := &Company{
		log:   o.Log,
		seed:  seed,
		logs:  sync.OnceValues(loadLogs),
		sleep: func(context.Context, time.Duration) error { return nil },
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if o.Latency {
		c.sleep = sleep
	}
	c.run.Store(newRun(1, seed, o.Outage))
	if c.servers, err = c.build(); err != nil {
		panic(fmt.Errorf("company: %w; build the program again from intact sources", err))
	}
	c.handler = c.routes()
	return c
}

// Reset begins a new run: the state is that of the fixture, the fault counters
// are zero and no calls are recorded. The outage scenario stays as it was.
func (c *Company) Reset() {
	c.resets.Lock()
	defer c.resets.Unlock()
	old := c.run.Load()
	c.run.Store(newRun(old.number+1, c.seed, old.outage))
}

// ResetOutage is Reset with the outage scenario switched on or off for this
// and the following runs.
func (c *Company) ResetOutage(on bool) {
	c.resets.Lock()
	defer c.resets.Unlock()
	c.run.Store(newRun(c.run.Load().number+1, c.seed, on))
}

// Calls returns the tool calls of the current run in the order in which they
// arrived. Calls of tools that a server does not have never reach the company
// and are not among them.
func (c *Company) Calls() []Call { return c.run.Load().recorded() }

// Outcomes of a [Call].
const (
	OutcomeRunning      = "running"      // not answered yet
	OutcomeOK           = "ok"           // answered with a result
	OutcomeError        = "error"        // answered with isError
	OutcomeDisconnected = "disconnected" // the outage scenario cut the connection
)

// Call is a recorded tools/call.
type Call struct {
	Tool
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Outcome   string          `json:"outcome"`
	// Error is the text of the answer when Outcome is "error".
	Error string `json:"error,omitempty"`
}

// Calls past these bounds are counted but not kept, so that a demo under load
// does not grow without end.
const (
	maxCalls     = 20_000
	maxCallBytes = 64 << 20
)

// run is everything that changes: the state, the fault counters and the
// recorded calls between two resets. A call keeps the run it began in.
type run struct {
	number int
	outage bool

	mu sync.Mutex // guards all below
	*fixture
	faults     faults
	created    int            // records, refunds, articles and messages created: the source of their ids
	numbers    map[string]int // by repository: the highest issue number created or deleted, which is not given again
	calls      []*Call
	callBytes  int
	unrecorded int
	stock      []Item     // of the warehouse, by SKU
	movements  []Movement // of this run, as they were booked
}

// faults counts what the injected faults depend on.
type faults struct {
	crmCalls      int // tool calls to crm, for the outage
	recordUpdates int
	issueGets     int // in flight
	issueCreates  int
	authQueries   int
	articles      int
}

func newRun(number int, seed *fixture, outage bool) *run {
	return &run{number: number, outage: outage, fixture: seed.clone(), numbers: map[string]int{}, stock: firstStock()}
}

// begin records a call.
func (r *run) begin(t Tool, args json.RawMessage) *Call {
	call := &Call{Tool: t, Arguments: slices.Clone(args), Outcome: OutcomeRunning}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) >= maxCalls || r.callBytes+len(args) > maxCallBytes {
		r.unrecorded++
		return call
	}
	r.callBytes += len(args)
	r.calls = append(r.calls, call)
	return call
}

func (r *run) end(call *Call, outcome, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.Outcome, call.Error = outcome, text
}

func (r *run) recorded() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]Call, len(r.calls))
	for i, call := range r.calls {
		calls[i] = *call
	}
	return calls
}

// nextID returns the id of something created in this run. The caller holds mu.
func (r *run) nextID(prefix string) string {
	r.created++
	return fmt.Sprintf("%s%06d", prefix, r.created)
}

// sleep waits for d.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
