package company

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The warehouse is not an MCP server: it is an HTTP API with an OpenAPI
// document, as most systems of a company are. It is no part of [Servers].
const (
	// WarehouseDocument is the path of its OpenAPI document.
	WarehouseDocument = "/warehouse/openapi.yaml"

	warehouseAPI = "/warehouse"
)

//go:embed warehouse.yaml
var warehouseYAML []byte

// Item is what the warehouse keeps of one product.
type Item struct {
	SKU     string `json:"sku"`
	Name    string `json:"name"`
	InStock int    `json:"in_stock"`
}

// Movement is a change of stock.
type Movement struct {
	ID       string `json:"id"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"` // negative: they went out
	Note     string `json:"note"`
}

// firstStock is what the warehouse has when a run begins, by SKU.
func firstStock() []Item {
	return []Item{
		{"adapter-hdmi", "HDMI adapter", 41}, {"cable-usb-c", "USB-C cable, 2 m", 260}, {"dock-12", "Dock with twelve ports", 3},
		{"headset-n", "Headset with noise cancelling", 0}, {"laptop-14", "Laptop, 14 inches", 17}, {"mouse-v", "Vertical mouse", 8},
		{"router-6e", "Wi-Fi 6E router", 5}, {"screen-27", "Screen, 27 inches", 22},
	}
}

// warehouse adds the API to the company's addresses.
func (c *Company) warehouse(mux *http.ServeMux) {
	mux.HandleFunc("GET "+WarehouseDocument, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Write(warehouseYAML)
	})
	handle := func(pattern, operation string, f func(r *run, req *http.Request) (int, any)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+warehouseAPI+path, func(w http.ResponseWriter, req *http.Request) {
			r := c.run.Load()
			call := r.begin(Tool{Server: "warehouse", Name: operation}, nil)
			status, answer := f(r, req)
			outcome, text := OutcomeOK, ""
			if status >= 400 {
				outcome, text = OutcomeError, fmt.Sprint(answer)
				answer = map[string]any{"error": answer}
			}
			r.end(call, outcome, text)
			if answer == nil {
				w.WriteHeader(status)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(answer) // the client may be gone
		})
	}
	handle("GET /items", "items_list", listItems)
	handle("GET /items/{sku}", "item_get", func(r *run, req *http.Request) (int, any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := r.item(req.PathValue("sku")); i >= 0 {
			return http.StatusOK, r.stock[i]
		}
		return noItem(req)
	})
	handle("POST /items/{sku}/movements", "movement_create", createMovement)
	handle("DELETE /movements/{id}", "movement_delete", func(r *run, req *http.Request) (int, any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.movements, func(m Movement) bool { return m.ID == req.PathValue("id") })
		if i < 0 {
			return http.StatusNotFound, fmt.Sprintf("there is no movement %.80q", req.PathValue("id"))
		}
		m := r.movements[i]
		r.stock[r.item(m.SKU)].InStock -= m.Quantity
		r.movements = slices.Delete(r.movements, i, i+1)
		return http.StatusNoContent, nil
	})
}

func noItem(req *http.Request) (int, any) {
	return http.StatusNotFound, fmt.Sprintf("there is no item %.80q; list them with GET /items", req.PathValue("sku"))
}

// item is the index of an item, or -1. The caller holds mu.
func (r *run) item(sku string) int {
	return slices.IndexFunc(r.stock, func(i Item) bool { return i.SKU == sku })
}

func listItems(r *run, req *http.Request) (int, any) {
	below := -1
	if text := req.URL.Query().Get("below"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return http.StatusBadRequest, fmt.Sprintf("below %.80q is no number of items", text)
		}
		below = n
	}
	search := strings.ToLower(req.URL.Query().Get("search"))
	r.mu.Lock()
	defer r.mu.Unlock()
	items := []Item{}
	for _, i := range r.stock {
		if (below < 0 || i.InStock < below) && strings.Contains(strings.ToLower(i.Name), search) {
			items = append(items, i)
		}
	}
	return http.StatusOK, map[string]any{"items": items}
}

func createMovement(r *run, req *http.Request) (int, any) {
	var m Movement
	if err := json.NewDecoder(http.MaxBytesReader(nil, req.Body, 1<<16)).Decode(&m); err != nil {
		return http.StatusBadRequest, fmt.Sprintf("the body is not a movement: %v", err)
	}
	if m.Quantity == 0 || m.Note == "" {
		return http.StatusBadRequest, "a movement has a quantity other than 0 and a note"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.item(req.PathValue("sku"))
	if i < 0 {
		return noItem(req)
	}
	if r.stock[i].InStock+m.Quantity < 0 {
		return http.StatusConflict, fmt.Sprintf("there are only %d of %s in stock", r.stock[i].InStock, r.stock[i].SKU)
	}
	r.stock[i].InStock += m.Quantity
	m.ID, m.SKU = r.nextID("mov_"), r.stock[i].SKU
	r.movements = append(r.movements, m)
	return http.StatusCreated, m
}
