package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

//go:embed assets/*
var assetFiles embed.FS

// assets are the files a browser loads besides the page.
type assets struct {
	css   string            // goes into the page, so that a page is one request
	files map[string][]byte // by name
	tags  map[string]string // hash, part of the address
}

func loadAssets() (assets, error) {
	a := assets{files: map[string][]byte{}, tags: map[string]string{}}
	css, err := assetFiles.ReadFile("assets/portal.css")
	if err != nil {
		return a, err
	}
	a.css = string(css)
	for _, name := range []string{"copy.js", "icon.svg"} {
		b, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			return a, err
		}
		sum := sha256.Sum256(b)
		a.files[name], a.tags[name] = b, hex.EncodeToString(sum[:6])
	}
	return a, nil
}

// path is the address of an asset. It changes with the content, so that a
// browser may keep it for ever; the server ignores the tag, so that replicas
// of two versions can serve each other's pages.
func (a assets) path(name string) string { return "/assets/" + name + "?v=" + a.tags[name] }

// Favicon leads to the portal's icon.
func (p *Pages) Favicon(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, p.assets.path("icon.svg"), http.StatusFound)
}

// Assets serves the files below /assets/. It needs no session.
func (p *Pages) Assets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, "/assets/")
		b, found := p.assets.files[name]
		if !ok || !found {
			http.Error(w, "There is no such file.", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Only GET and HEAD.", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("ETag", fmt.Sprintf("%q", p.assets.tags[name]))
		h.Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == p.assets.tags[name] {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
	})
}
