package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
)

func openWriter(t *testing.T, c config.Audit, dir string) (*Writer, *testlog.Buffer) {
	t.Helper()
	log, buf := testlog.New()
	w, err := Open(c, filepath.Join(dir, "portal.yaml"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, buf
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// all reads a file whose every line must be an event.
func all(t *testing.T, path string) []Event {
	t.Helper()
	var out []Event
	for e, err := range Read(path, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func TestEveryFieldComesBack(t *testing.T) {
	dir := t.TempDir()
	w, _ := openWriter(t, config.Audit{Arguments: true}, dir)
	want := Event{
		Time: time.Date(2026, 12, 2, 9, 0, 0, 5000, time.UTC), ID: "e1", User: "oidc:alice", Client: "inspector/1.2", Session: "h",
		Mode: "code", Run: "r1", Method: "tools/call", Server: "dns", Capability: "list_records", Class: "read", Decision: "allow",
		Rule: "careful", Approval: "a1", Status: "ok", Error: "none", Duration: 1.5, BytesIn: 2, BytesOut: 3,
		Arguments: json.RawMessage(`{"n":12345678901234567890}`),
	}
	w.Record(t.Context(), want)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.jsonl")
	got := all(t, path)
	if len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v; want 0600", info.Mode())
	}
	if st := w.Status(); st != (Status{Written: 1}) {
		t.Errorf("status %+v", st)
	}
}

func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	// Two writers of one file, as two processes would be.
	a, _ := openWriter(t, config.Audit{}, dir)
	b, _ := openWriter(t, config.Audit{}, dir)
	const writers, each = 20, 200
	var wg sync.WaitGroup
	for i := range writers {
		w := a
		if i%2 == 1 {
			w = b
		}
		wg.Go(func() {
			for n := range each {
				w.Record(context.Background(), Event{ID: fmt.Sprintf("%d-%d", i, n), Error: strings.Repeat("x", 300)})
			}
		})
	}
	wg.Wait()
	for _, w := range []*Writer{a, b} {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, e := range all(t, filepath.Join(dir, "audit.jsonl")) {
		seen[e.ID] = true
		var i, n int
		fmt.Sscanf(e.ID, "%d-%d", &i, &n)
		if key := fmt.Sprint(i); n+1 <= last[key] {
			t.Errorf("event %s came after %d of the same writer", e.ID, last[key]-1)
		} else {
			last[key] = n + 1
		}
	}
	if len(seen) != writers*each {
		t.Errorf("%d different events; want %d", len(seen), writers*each)
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	w, _ := openWriter(t, config.Audit{File: "calls.jsonl"}, dir)
	path := filepath.Join(dir, "calls.jsonl")
	total := 0
	for round := range 3 {
		for range 10 {
			w.Record(t.Context(), Event{ID: fmt.Sprint(total)})
			total++
		}
		eventually(t, "the events are written", func() bool { return w.Status().Written == int64(total) })
		if err := os.Rename(path, fmt.Sprintf("%s.%d", path, round)); err != nil {
			t.Fatal(err)
		}
	}
	// The new file appears also when nothing more is written.
	eventually(t, "a new file follows the rotation", func() bool { _, err := os.Stat(path); return err == nil })
	w.Record(t.Context(), Event{ID: "last"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for round := range 3 {
		got := all(t, fmt.Sprintf("%s.%d", path, round))
		if len(got) != 10 {
			t.Errorf("file %d has %d events; want 10", round, len(got))
		}
		for _, e := range got {
			if e.ID != fmt.Sprint(n) {
				t.Errorf("event %s; want %d", e.ID, n)
			}
			n++
		}
	}
	if got := all(t, path); len(got) != 1 || got[0].ID != "last" {
		t.Errorf("the new file has %+v", got)
	}
}

func TestTruncatedInPlace(t *testing.T) {
	dir := t.TempDir()
	w, _ := openWriter(t, config.Audit{}, dir)
	path := filepath.Join(dir, "audit.jsonl")
	w.Record(t.Context(), Event{ID: "1"})
	eventually(t, "written", func() bool { return w.Status().Written == 1 })
	if err := os.Truncate(path, 0); err != nil { // logrotate copytruncate
		t.Fatal(err)
	}
	w.Record(t.Context(), Event{ID: "2"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := all(t, path); len(got) != 1 || got[0].ID != "2" {
		t.Errorf("got %+v", got)
	}
}

// TestDiskErrorIsVisibleAndHeals makes the path unwritable under a running
// writer: a directory stands where the file was.
func TestDiskErrorIsVisibleAndHeals(t *testing.T) {
	dir := t.TempDir()
	w, log := openWriter(t, config.Audit{}, dir)
	path := filepath.Join(dir, "audit.jsonl")
	w.Record(t.Context(), Event{ID: "before"})
	eventually(t, "written", func() bool { return w.Status().Written == 1 })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		// The writer was quicker and made the new file; take its place.
		_ = os.Remove(path)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.Record(t.Context(), Event{ID: "during"})
	eventually(t, "the error is in the status", func() bool { return w.Status().Error != "" })
	if !strings.Contains(log.String(), "audit: events cannot be written and wait") {
		t.Errorf("the log does not say it: %s", log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event is written after all", func() bool { st := w.Status(); return st.Error == "" && st.Written == 2 })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := all(t, path); len(got) != 1 || got[0].ID != "during" {
		t.Errorf("got %+v", got)
	}
	if st := w.Status(); st.Lost != 0 || !strings.Contains(log.String(), "written again") {
		t.Errorf("status %+v, log %s", st, log)
	}
}

// brokenStream fails every write, like a full disk that stays full.
type brokenStream struct{}

func (brokenStream) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestLossIsCountedAndLogged(t *testing.T) {
	log, buf := testlog.New()
	w := newWriter(false, log)
	w.out, w.queue = brokenStream{}, make(chan Event, 4)
	w.block, w.retry, w.giveUp = time.Millisecond, time.Millisecond, time.Millisecond
	go w.run()
	const events = 20
	for range events {
		w.Record(t.Context(), Event{})
	}
	if w.Status().Lost == 0 {
		t.Error("a full queue lost nothing, or lost it silently")
	}
	eventually(t, "the loss is logged while the writer runs", func() bool { return strings.Contains(buf.String(), "events lost") })
	err := w.Close()
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Close: %v; want the number of lost events and why", err)
	}
	w.Record(t.Context(), Event{}) // too late
	if st := w.Status(); st.Lost != events+1 || st.Written != 0 {
		t.Errorf("status %+v; want %d lost", st, events+1)
	}
	if err2 := w.Close(); err2 != err {
		t.Errorf("closing again: %v", err2)
	}
	logged := 0
	for line := range strings.Lines(buf.String()) {
		var n int
		if i := strings.Index(line, "audit: "); i >= 0 {
			if _, err := fmt.Sscanf(line[i:], "audit: %d events lost", &n); err == nil {
				logged += n
			}
		}
	}
	if logged != events+1 {
		t.Errorf("the log accounts for %d lost events; want %d:\n%s", logged, events+1, buf)
	}
}

func TestRecordWaitsForASlowDisk(t *testing.T) {
	log, _ := testlog.New()
	w := newWriter(false, log)
	gate := make(chan struct{})
	out := &gatedStream{gate: gate}
	w.out, w.queue, w.block = out, make(chan Event, 1), time.Minute
	go w.run()
	done := make(chan struct{})
	go func() {
		for i := range 10 {
			w.Record(context.Background(), Event{ID: fmt.Sprint(i)})
		}
		close(done)
	}()
	close(gate)
	<-done
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if st := w.Status(); st.Lost != 0 || st.Written != 10 || out.lines != 10 {
		t.Errorf("status %+v, %d lines", st, out.lines)
	}
}

type gatedStream struct {
	gate  chan struct{}
	lines int
}

func (s *gatedStream) Write(p []byte) (int, error) {
	<-s.gate
	s.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// TestNoArgumentValuesAndNoCredentials looks for planted values in the bytes
// of the file.
func TestNoArgumentValuesAndNoCredentials(t *testing.T) {
	event := Event{
		ID: "e", Client: "evil/1 Bearer planted-credential", Capability: "https://u:planted-credential@host/doc?token=planted-credential",
		Error:     "upstream said: Authorization: Bearer planted-credential",
		Arguments: json.RawMessage(`{"note":"planted-value","password":"planted-credential","nested":[{"api_key":12,"text":"Bearer planted-credential"}]}`),
	}
	for _, arguments := range []bool{false, true} {
		dir := t.TempDir()
		w, _ := openWriter(t, config.Audit{Arguments: arguments}, dir)
		w.Record(t.Context(), event)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("planted-credential")) {
			t.Errorf("arguments %v: a credential was written: %s", arguments, data)
		}
		if got := bytes.Contains(data, []byte("planted-value")); got != arguments {
			t.Errorf("arguments %v: argument values written: %v", arguments, got)
		}
		if bytes.Contains(data, []byte(`"arguments"`)) != arguments {
			t.Errorf("arguments %v: %s", arguments, data)
		}
		if string(event.Arguments[2:6]) != "note" {
			t.Fatal("the caller's bytes were changed")
		}
	}
}

func TestHostileFieldsStayOneSafeLine(t *testing.T) {
	dir := t.TempDir()
	w, _ := openWriter(t, config.Audit{Arguments: true}, dir)
	hostile := "a\nb\r\x1b[31m\x00\u009b2J\u202e\u2028\x7f\xff\U000e0041"
	w.Record(t.Context(), Event{
		ID: hostile, User: strings.Repeat("u", 5000), Server: hostile, Capability: strings.Repeat("c", 50000),
		Error: strings.Repeat("ä", 5000), Arguments: json.RawMessage("{\"x\":\n\"\u009b\u202e\"}"),
	})
	w.Record(t.Context(), Event{ID: "broken", Arguments: json.RawMessage(`{"x":`)})
	w.Record(t.Context(), Event{ID: "large", Arguments: json.RawMessage(`"` + strings.Repeat("x", maxArguments) + `"`)})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.jsonl")
	data, _ := os.ReadFile(path)
	if bytes.Count(data, []byte("\n")) != 3 {
		t.Fatalf("%d lines; want 3", bytes.Count(data, []byte("\n")))
	}
	for _, bad := range []string{"\x1b", "\u009b", "\u202e", "\x7f", "\r", "\x00", "\U000e0041"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("%q is in the file as it is", bad)
		}
	}
	got := all(t, path)
	if got[0].ID != strings.ReplaceAll(hostile, "\xff", "\uFFFD") {
		t.Errorf("the id came back as %q", got[0].ID)
	}
	if n := len([]rune(got[0].Error)); n != maxError {
		t.Errorf("error of %d characters; want %d", n, maxError)
	}
	if len(got[0].User) > 4*maxName || len(got[0].Capability) > 4*maxURI {
		t.Errorf("unbounded fields: %d, %d", len(got[0].User), len(got[0].Capability))
	}
	if !strings.Contains(string(got[1].Arguments), "not valid JSON") || !strings.Contains(string(got[2].Arguments), "too many") {
		t.Errorf("arguments %s and %.60s", got[1].Arguments, got[2].Arguments)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	log, _ := testlog.New()
	for _, file := range []string{dir, filepath.Join(dir, "none", "audit.jsonl")} {
		_, err := Open(config.Audit{File: file}, filepath.Join(dir, "portal.yaml"), log)
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "audit.file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestHalfLineOfACrashIsEnded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"id":"half","us`), 0o600); err != nil {
		t.Fatal(err)
	}
	w, _ := openWriter(t, config.Audit{}, dir)
	w.Record(t.Context(), Event{ID: "whole"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	damaged := 0
	for e, err := range Read(path, Filter{}) {
		var le *LineError
		if errors.As(err, &le) {
			damaged++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	if damaged != 1 || len(ids) != 1 || ids[0] != "whole" {
		t.Errorf("%d damaged lines, events %q", damaged, ids)
	}
}
