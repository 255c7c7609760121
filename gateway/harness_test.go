package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/gateway"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/internal/testprogram"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// worker is the program whose processes run the scripts, built once without
// cgo, as it is released.
var worker string

func TestMain(m *testing.M) {
	upstreamtest.RunChild()
	os.Exit(testprogram.Main(m.Run, func(dir string) { worker = filepath.Join(dir, "mcp-portal") }, "../cmd/mcp-portal"))
}

// patience is how long a test waits for what must come. It decides nothing
// that goes well.
const patience = 3 * time.Minute

// portal is the whole house in this process, wired as the program wires it,
// behind a real listener.
type portal struct {
	t     testing.TB
	url   string // origin
	audit string // path of the audit file
	dir   string
	log   *testlog.Buffer

	cfg      *config.Config
	gateway  *gateway.Gateway
	auth     *auth.Auth
	registry *registry.Registry
	logins   *logins.Logins
	manager  *upstreams.Manager
	store    store.Store
	pool     *codemode.Pool
	stop     func()
	stopping atomic.Bool
}

// start brings up a portal with a configuration, of which name, listener and,
// unless given, store, audit and auth are filled in. ORIGIN in it becomes
// the portal's origin. wrap, if not nil, stands before the store.
func start(t testing.TB, yaml string, wrap func(store.Store) store.Store) *portal {
	t.Helper()
	return startIn(t, t.TempDir(), yaml, wrap)
}

func startIn(t testing.TB, dir, yaml string, wrap func(store.Store) store.Store) *portal {
	t.Helper()
	testprogram.Depend(t)
	srv := httptest.NewUnstartedServer(nil)
	p := &portal{t: t, dir: dir, url: "http://" + srv.Listener.Addr().String(), audit: filepath.Join(dir, "audit.jsonl"), log: &testlog.Buffer{}}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	p.cfg = p.parse(yaml)
	ctx, cancel := context.WithCancel(context.Background())
	st, err := store.Open(ctx, p.cfg.Store, p.cfg.Path, log)
	p.must(err)
	if wrap != nil {
		st = wrap(st)
	}
	p.store = st
	trail, err := audit.Open(p.cfg.Audit, p.cfg.Path, log)
	p.must(err)
	p.auth, err = auth.New(auth.Options{Config: p.cfg, Store: st, Log: log})
	p.must(err)
	sealing, err := vault.New(vault.Options{Store: st, Log: log})
	p.must(err)
	p.registry = registry.New(registry.Options{Store: st, Log: log, Catalog: p.cfg.Catalog})
	p.registry.SetServers(p.cfg.Servers)
	p.registry.Restore(ctx)
	p.pool, err = codemode.NewPool(ctx, codemode.PoolOptions{Code: p.cfg.Code, Log: log, Executable: worker})
	p.must(err)
	p.logins, err = logins.New(ctx, logins.Options{Config: p.cfg, Store: st, Vault: sealing, Log: log})
	p.must(err)
	p.manager = upstreams.NewManager(ctx, upstreams.Options{Credentials: p.logins, Log: log, Limits: p.cfg.Limits, Poll: p.cfg.Catalog.Poll,
		ClientInfo: []byte(`{"name":"mcp-portal","version":"test"}`), OnStatus: p.registry.SetStatus, OnCatalogue: p.registry.Update,
		OnNotification: func(server, user, session, method string, params json.RawMessage) {
			p.gateway.FromServer(server, user, session, method, params)
		}})
	p.gateway, err = gateway.New(ctx, gateway.Options{Config: p.cfg, Version: "test", Log: log, Store: st, Auth: p.auth,
		Registry: p.registry, Upstreams: p.manager, Logins: p.logins, Runner: p.pool, Audit: trail, Vault: sealing})
	p.must(err)
	p.manager.Apply(p.cfg.Servers, nil)
	srv.Config.Handler = p.gateway.Handler()
	srv.Start()
	p.stop = sync.OnceFunc(func() {
		p.stopping.Store(true)
		c, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer done()
		p.gateway.Close(c)
		srv.CloseClientConnections()
		srv.Close()
		p.pool.Close()
		p.manager.Close(c)
		p.registry.Close()
		cancel()
		_ = trail.Close()
		_ = st.Close()
		if t.Failed() {
			s := p.log.String()
			t.Logf("log of the portal:\n%s", s[max(0, len(s)-4000):])
		}
	})
	t.Cleanup(p.stop)
	p.awaitTools()
	return p
}

// parse reads the configuration as the program does.
func (p *portal) parse(yaml string) *config.Config {
	p.t.Helper()
	yaml = strings.ReplaceAll(yaml, "ORIGIN", p.url)
	full := "name: Test\nlisten: " + strings.TrimPrefix(p.url, "http://") + "\n" + yaml
	if !strings.Contains(yaml, "store:") {
		full += "\nstore: {file: " + filepath.Join(p.dir, "portal.db") + "}\n"
	}
	if !strings.Contains(yaml, "audit:") {
		full += "\naudit: {file: " + p.audit + "}\n"
	}
	if !strings.Contains(yaml, "auth:") {
		full += "auth: {mode: none}\n"
	}
	cfg, err := config.Parse(filepath.Join(p.dir, "portal.yaml"), []byte(full), os.LookupEnv)
	if err != nil {
		p.t.Fatalf("configuration: %v\n%s", err, full)
	}
	return cfg
}

// recordOf is what the store has of a run.
func (p *portal) recordOf(run string) string {
	raw, _, err := p.store.Get(context.Background(), "run:"+run)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// reload switches to another configuration as the program does.
func (p *portal) reload(yaml string) {
	p.t.Helper()
	next := p.parse(yaml)
	p.must(p.auth.SetConfig(next))
	p.must(p.gateway.SetConfig(next))
	p.logins.SetConfig(next)
	p.registry.SetCatalog(next.Catalog)
	p.manager.Apply(next.Servers, func() { p.registry.SetServers(next.Servers) })
	p.cfg = next
	p.awaitTools()
}

// awaitTools waits until every server is there with what it offers.
func (p *portal) awaitTools() {
	p.t.Helper()
	p.until("all servers are ready", func() bool {
		want := 0
		for _, s := range p.cfg.Servers {
			if s.Enabled == nil || *s.Enabled {
				want++
			}
		}
		ready, listed := 0, 0
		for _, s := range p.manager.Statuses() {
			if s.State == upstreams.Ready || s.State == upstreams.LoginNeeded {
				ready++
			}
		}
		for _, s := range p.registry.Snapshot().Servers {
			if s.State == upstreams.Ready && !s.FromCache || s.State == upstreams.LoginNeeded {
				listed++
			}
		}
		return ready >= want && listed >= want
	})
}

// until waits for a condition that must become true.
func (p *portal) until(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("waited in vain until %s\n%s", what, p.log.String())
		}
	}
}

func (p *portal) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// auditLines are the lines of the audit so far, once ok is content with them.
func (p *portal) auditLines(ok func(lines []map[string]any) bool) (lines []map[string]any, raw string) {
	p.t.Helper()
	p.until("the audit has what is expected", func() bool {
		b, err := os.ReadFile(p.audit)
		if err != nil {
			return false
		}
		lines, raw = nil, string(b)
		for l := range strings.Lines(raw) {
			var m map[string]any
			if json.Unmarshal([]byte(l), &m) != nil {
				return false // a line under way
			}
			lines = append(lines, m)
		}
		return ok(lines)
	})
	return lines, raw
}

// get fetches a page of the portal; redirects are not followed.
func (p *portal) get(path string) (*http.Response, string) {
	p.t.Helper()
	return p.page(http.MethodGet, path, "", nil)
}

func (p *portal) page(method, path, form string, cookies []*http.Cookie) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(form))
	p.must(err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.url)
	}
	for _, c := range cookies {
		req.AddCookie(c)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	p.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp, string(b)
}

// submit opens a page as the person of development mode does, and sends a form
// with the page's token to an address.
func (p *portal) submit(page, action, form string) (*http.Response, string) {
	p.t.Helper()
	return p.fill(page)(action, form)
}

// fill loads a page with a form and returns how to send it, as often as wanted.
func (p *portal) fill(page string) func(action, form string) (*http.Response, string) {
	p.t.Helper()
	resp, body := p.get(page)
	_, rest, ok := strings.Cut(body, `name="csrf`)
	if !ok {
		p.t.Fatalf("GET %s: %d, no form on it: %.400s", page, resp.StatusCode, body)
	}
	name, rest, _ := strings.Cut(rest, `"`)
	_, rest, _ = strings.Cut(rest, `value="`)
	value, _, _ := strings.Cut(rest, `"`)
	return func(action, form string) (*http.Response, string) {
		return p.page(http.MethodPost, action, "csrf"+name+"="+value+"&"+form, resp.Cookies())
	}
}

// approve says yes on the page of an approval. It may come second.
func (p *portal) approve(id string) {
	p.t.Helper()
	resp, body := p.submit("/approvals/"+id, "/approvals/"+id, "decision=approve")
	if resp.StatusCode != http.StatusSeeOther && !strings.Contains(body, "already answered") {
		p.t.Fatalf("approve %s: %d %.300s", id, resp.StatusCode, body)
	}
}

// A server with a tool that only reads and one that destroys. It reads params
// as encoding/json does: members in any case, the last one counts.
type victim struct {
	*upstreamtest.Server
	mu  sync.Mutex
	got []string // params of every tools/call
}

const (
	readOnly    = `{"readOnlyHint":true}`
	destructive = `{"destructiveHint":true}`
)

func toolDef(name, annotations string) json.RawMessage {
	return json.RawMessage(`{"name":"` + name + `","description":"tool ` + name + `","inputSchema":{"type":"object","properties":{"id":{"type":"string"}}},"annotations":` + annotations + `}`)
}

// serve starts a victim. handle, if not nil, may answer calls before it does.
func serve(t *testing.T, era upstreamtest.Era, handle func(*upstreamtest.Call) bool) *victim {
	t.Helper()
	return serveWith(t, upstreamtest.Options{Era: era, Tools: []json.RawMessage{toolDef("look", readOnly), toolDef("kill", destructive)}}, handle)
}

func serveWith(t *testing.T, o upstreamtest.Options, handle func(*upstreamtest.Call) bool) *victim {
	t.Helper()
	v := &victim{}
	o.Handle = func(c *upstreamtest.Call) bool {
		if c.Method == "tools/call" {
			v.mu.Lock()
			v.got = append(v.got, string(c.Params))
			v.mu.Unlock()
		}
		if handle != nil && handle(c) {
			return true
		}
		if c.Method != "tools/call" {
			return false
		}
		var p struct {
			Name      string
			Arguments map[string]any
		}
		_ = json.Unmarshal(c.Params, &p)
		args, _ := json.Marshal(p.Arguments)
		c.Text("ran " + p.Name + " " + string(args))
		return true
	}
	v.Server = upstreamtest.New(t, o)
	return v
}

// calls are the params of the tool calls that arrived.
func (v *victim) calls() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.got...)
}

// trusted configures a victim as server s.
func trusted(v *victim) string {
	return "servers:\n  s:\n    url: " + v.URL + "\n    trust_annotations: true\n"
}
