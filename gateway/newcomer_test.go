package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// browse opens a page as a browser does.
func (p *portal) browse(path string) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	p.must(err)
	req.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	resp, err := http.DefaultTransport.RoundTrip(req)
	p.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp, string(b)
}

// Every page says how much waits for an answer, and the number goes when it was
// given.
func TestPagesCountWhatWaits(t *testing.T) {
	p := start(t, trusted(serve(t, upstreamtest.Modern, nil)), nil)
	c := p.client(modern, "", noCaps, nil)
	const count = `<span class="sr"> waiting for you</span>`
	if _, body := p.browse("/"); strings.Contains(body, count) {
		t.Fatal("something waits before anything was called")
	}
	id := approvalID.FindString(c.call("s_kill", `{"id":"1"}`, "", nil).text())
	c.call("s_kill", `{"id":"2"}`, "", nil)
	for _, path := range []string{"/", "/servers", "/clients", "/approvals", "/approvals/" + id, "/nowhere"} {
		if _, body := p.browse(path); !strings.Contains(body, ">2"+count) {
			t.Errorf("%s does not say that two calls wait", path)
		}
	}
	p.approve(id)
	if _, body := p.browse("/"); !strings.Contains(body, ">1"+count) {
		t.Error("the answered call still counts")
	}
}

// A person who opens the address of a button or of a program sees a page, not
// an empty window; programs get what they did.
func TestAddressesWithoutAPage(t *testing.T) {
	p := start(t, trusted(serve(t, upstreamtest.Modern, nil)), nil)
	for _, path := range []string{"/auth/logout", "/auth/backchannel-logout", "/plans/x/undo"} {
		resp, body := p.browse(path)
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" || !strings.Contains(body, `href="/servers"`) || !strings.Contains(body, "Begin on the home page") {
			t.Errorf("%s: %d, Allow %q, %.200s", path, resp.StatusCode, resp.Header.Get("Allow"), body)
		}
		if resp, body := p.get(path); resp.StatusCode != 405 || body != "" {
			t.Errorf("%s for programs: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, body := p.browse("/nowhere"); resp.StatusCode != 404 || !strings.Contains(body, `href="/servers"`) {
		t.Errorf("no way on from a page that is not there: %d", resp.StatusCode)
	}
	resp, _ := p.get("/favicon.ico")
	if resp, body := p.get(resp.Header.Get("Location")); resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "image/svg+xml" || !strings.Contains(body, "<svg") {
		t.Errorf("the icon: %d %.200s", resp.StatusCode, body)
	}
	if _, body := p.browse("/clients"); !strings.Contains(body, "Without sign-in every client of this machine may connect") {
		t.Error("the page of clients does not say why it is empty")
	}
}
