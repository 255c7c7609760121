package company

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The warehouse does what its document says, and begins anew with the company.
func TestWarehouse(t *testing.T) {
	c := New(Options{})
	srv := httptest.NewServer(c.Handler())
	defer srv.Close()
	for _, step := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/warehouse/openapi.yaml", "", 200, "operationId: movement_create"},
		{"GET", "/warehouse/items?below=1", "", 200, `{"items":[{"sku":"headset-n","name":"Headset with noise cancelling","in_stock":0}]}`},
		{"GET", "/warehouse/items?search=cable", "", 200, "cable-usb-c"},
		{"GET", "/warehouse/items?below=few", "", 400, "no number"},
		{"GET", "/warehouse/items/dock-12", "", 200, `"in_stock":3`},
		{"GET", "/warehouse/items/nothing", "", 404, "no item"},
		{"POST", "/warehouse/items/dock-12/movements", `{"quantity":-4,"note":"sent"}`, 409, "only 3"},
		{"POST", "/warehouse/items/dock-12/movements", `{"quantity":0,"note":"x"}`, 400, "other than 0"},
		{"POST", "/warehouse/items/dock-12/movements", `[]`, 400, "not a movement"},
		{"POST", "/warehouse/items/nothing/movements", `{"quantity":1,"note":"x"}`, 404, "no item"},
		{"POST", "/warehouse/items/dock-12/movements", `{"quantity":4,"note":"delivery"}`, 201, `"id":"mov_000001"`},
		{"GET", "/state", "", 200, `"movements"`},
		{"GET", "/warehouse/items/dock-12", "", 200, `"in_stock":7`},
		{"DELETE", "/warehouse/movements/mov_000001", "", 204, ""},
		{"DELETE", "/warehouse/movements/mov_000001", "", 404, "no movement"},
		{"GET", "/warehouse/items/dock-12", "", 200, `"in_stock":3`},
		{"POST", "/warehouse/items/dock-12/movements", `{"quantity":1,"note":"found"}`, 201, "mov_"},
		{"POST", "/reset", "", 204, ""},
		{"GET", "/warehouse/items/dock-12", "", 200, `"in_stock":3`},
	} {
		req, err := http.NewRequest(step.method, srv.URL+step.path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != step.status || !strings.Contains(string(body), step.says) {
			t.Errorf("%s %s: %d %s, want %d with %q", step.method, step.path, resp.StatusCode, body, step.status, step.says)
		}
	}
	calls := c.Calls()
	if len(calls) != 1 || calls[0].Server != "warehouse" || calls[0].Outcome != OutcomeOK {
		t.Errorf("recorded since the reset: %+v", calls)
	}
}
