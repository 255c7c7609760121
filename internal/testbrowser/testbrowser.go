// Package testbrowser starts a real browser for tests of pages.
package testbrowser

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Patience is how long one tab may take for all that a test does in it; a test
// that goes well never waits for it.
const Patience = 5 * time.Minute

// Start starts Chromium and returns a tab of it for chromedp. Both end with the
// test, which fails where no Chromium is installed.
func Start(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Fatal("no Chromium is installed; make test installs it (apt-get install chromium)")
	}
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.WSURLReadTimeout(2*time.Minute))...)
	t.Cleanup(cancel)
	tab, cancelTab := chromedp.NewContext(alloc)
	t.Cleanup(cancelTab)
	ctx, cancelTime := context.WithTimeout(tab, Patience)
	t.Cleanup(cancelTime)
	return ctx
}

// People starts one Chromium with n tabs, each with cookies of its own.
func People(t *testing.T, n int) []context.Context {
	t.Helper()
	first := Start(t)
	if err := chromedp.Do(first, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	var tabs []context.Context
	for range n {
		own, cancel := chromedp.NewContext(first, chromedp.WithNewBrowserContext())
		t.Cleanup(cancel)
		tabs = append(tabs, own)
	}
	return tabs
}
