package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// A server may answer a tools/call with a task, which its client looks after
// with tasks/* (2025-11-25, and the extension of 2026-07-28). Ids of tasks are
// unique at their server only, so a client gets another one, which stands for
// user, server and id. It is found again in the store, by any replica, and only
// for the user whose call made the task; making it was subject to WriteGuard.

const (
	taskPrefix  = "task_"
	metaRelated = "io.modelcontextprotocol/related-task"
	maxTaskFor  = 7 * 24 * time.Hour // kept in the store
	tasksListed = 200
)

// taskRecord is what the store keeps of a task, under the id of its client.
type taskRecord struct {
	User    string    `json:"user"`
	Server  string    `json:"server"`
	ID      string    `json:"id"` // as its server knows it
	Created time.Time `json:"created"`
}

// tasks remembers the tasks that could not be stored.
type tasks struct {
	mu    sync.Mutex
	known map[string]taskRecord
}

// outwardTask is the id that a client knows a task by.
func outwardTask(user, server, own string) string {
	return taskPrefix + shortHash(user+"\x00"+server+"\x00"+own)
}

func taskKey(user, outward string) string { return "task:" + shortHash(user) + ":" + outward }

// taskIn finds the id of a task that a result makes, and how long it lives in
// milliseconds (0: not said).
func taskIn(result json.RawMessage) (id string, ttl float64) {
	var r struct {
		ResultType string  `json:"resultType"`
		ID         string  `json:"taskId"`
		TTL        float64 `json:"ttlMs"`
		Task       struct {
			ID  string  `json:"taskId"`
			TTL float64 `json:"ttl"`
		} `json:"task"`
	}
	_ = json.Unmarshal(result, &r) // what is not of this form is no task
	if r.ResultType == "task" && r.ID != "" {
		return r.ID, r.TTL
	}
	return r.Task.ID, r.Task.TTL
}

// madeTask keeps a task that a call made and gives its result the client's id.
// A result that makes none keeps its bytes.
func (g *Gateway) madeTask(ctx context.Context, r *request, server string, result json.RawMessage) json.RawMessage {
	if !strings.Contains(string(result), `"taskId"`) {
		return result
	}
	own, ttl := taskIn(result)
	if own == "" {
		return relatedTask(result, func(id string) string { return outwardTask(r.who.ID, server, id) })
	}
	outward := outwardTask(r.who.ID, server, own)
	rec := taskRecord{User: r.who.ID, Server: server, ID: own, Created: g.now()}
	keep := maxTaskFor
	if ttl > 0 && ttl < float64(maxTaskFor/time.Millisecond) {
		keep = max(time.Duration(ttl)*time.Millisecond+time.Hour, time.Hour)
	}
	if err := g.opt.Store.Set(ctx, taskKey(r.who.ID, outward), wire.Encode(rec), keep); err != nil {
		g.log.Warn("a task is known to this process only", "server", server, "error", err)
		g.tasks.mu.Lock()
		if g.tasks.known == nil || len(g.tasks.known) >= 10000 {
			g.tasks.known = map[string]taskRecord{}
		}
		g.tasks.known[taskKey(r.who.ID, outward)] = rec
		g.tasks.mu.Unlock()
	}
	o, err := wire.ParseObject(result)
	if err != nil {
		return result
	}
	if inner, err := wire.ParseObject(o.Get("task")); err == nil && inner.String("taskId") == own {
		return replaced(result, o, "task", inner.SetString("taskId", outward).Bytes())
	}
	return replaced(result, o, "taskId", wire.Quote(outward))
}

// taskOf finds a task of the user by the client's id.
func (g *Gateway) taskOf(ctx context.Context, user, outward string) (taskRecord, bool, error) {
	key := taskKey(user, outward)
	g.tasks.mu.Lock()
	rec, ok := g.tasks.known[key]
	g.tasks.mu.Unlock()
	if ok {
		return rec, true, nil
	}
	raw, ok, err := g.opt.Store.Get(ctx, key)
	if err != nil {
		return rec, false, fmt.Errorf("look up the task: the store cannot be reached, try again: %w", err)
	}
	ok = ok && json.Unmarshal(raw, &rec) == nil && rec.User == user
	return rec, ok, nil
}

// declaresTasks refuses a 2026-07-28 client that did not declare the extension.
func (r *request) declaresTasks() *wire.Error {
	if !r.modern {
		return nil
	}
	caps, err := wire.ParseObject(r.caps)
	if err == nil {
		if e, err := wire.ParseObject(caps.Get("extensions")); err == nil && e.Get(extTasks) != nil {
			return nil
		}
	}
	e := wire.Errorf(wire.CodeMissingCapability, "declare the extension %s in the client capabilities to use tasks", extTasks)
	e.Data = json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + extTasks + `":{}}}}`)
	return e
}

// taskMethod is tasks/get, tasks/result, tasks/update and tasks/cancel.
func (g *Gateway) taskMethod(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	if r.modern && r.msg.Method == "tasks/result" {
		return nil, wire.Errorf(wire.CodeMethodNotFound, "tasks/result belongs to 2025-11-25: tasks/get has the result")
	}
	if e := r.declaresTasks(); e != nil {
		return nil, e
	}
	outward := r.params.String("taskId")
	rec, ok, err := g.taskOf(ctx, r.who.ID, outward)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "%v", err)
	}
	if !ok {
		g.recordRefused(ctx, r, r.msg.Method, outward)
		return nil, wire.Errorf(wire.CodeInvalidParams, "Task not found: %q is no task of yours, or has expired", bounded(outward, 80))
	}
	params := forwardParams(r.params, "taskId", rec.ID)
	result, e := g.relayed(ctx, r, crossing{method: r.msg.Method, server: rec.Server, name: rec.ID, params: params})
	if e != nil {
		return nil, e
	}
	if o, err := wire.ParseObject(result); err == nil && o.String("taskId") == rec.ID {
		result = replaced(result, o, "taskId", wire.Quote(outward))
	}
	return relatedTask(result, func(id string) string { return outwardTask(r.who.ID, rec.Server, id) }), nil
}

// tasksList is tasks/list of 2025-11-25: the user's own tasks, as their servers
// see them now.
func (g *Gateway) tasksList(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	if r.modern {
		return nil, wire.Errorf(wire.CodeMethodNotFound, "there is no tasks/list in %s", wire.Version20260728)
	}
	prefix := taskKey(r.who.ID, "")
	keys, err := g.opt.Store.Keys(ctx, prefix)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "the tasks cannot be listed, the store cannot be reached: try again")
	}
	records := map[string]taskRecord{}
	g.tasks.mu.Lock()
	for k, rec := range g.tasks.known {
		if rec.User == r.who.ID {
			records[strings.TrimPrefix(k, prefix)] = rec
		}
	}
	g.tasks.mu.Unlock()
	for _, k := range keys {
		outward := strings.TrimPrefix(k, prefix)
		if rec, ok, err := g.taskOf(ctx, r.who.ID, outward); err == nil && ok {
			records[outward] = rec
		}
	}
	ids := slices.SortedFunc(maps.Keys(records), func(a, b string) int { return records[b].Created.Compare(records[a].Created) })
	ids = ids[:min(len(ids), tasksListed)]
	out := make([]json.RawMessage, len(ids))
	var wg sync.WaitGroup
	places := make(chan struct{}, 8)
	for i, outward := range ids {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			out[i] = g.taskNow(ctx, r, outward, records[outward])
		})
	}
	wg.Wait()
	return listed("tasks", slices.DeleteFunc(out, func(t json.RawMessage) bool { return t == nil })), nil
}

// taskNow is a task as its server sees it; nil if it is none of the client's
// view, or gone.
func (g *Gateway) taskNow(ctx context.Context, r *request, outward string, rec taskRecord) json.RawMessage {
	if !r.view.shows(rec.Server) {
		return nil
	}
	params := wire.Object{{Key: "taskId", Value: wire.Quote(rec.ID)}}
	result, e := g.relayed(ctx, r, crossing{method: "tasks/get", server: rec.Server, name: rec.ID, params: params})
	if e != nil && e.Code == wire.CodeInvalidParams {
		if err := g.opt.Store.Delete(ctx, taskKey(r.who.ID, outward)); err != nil {
			g.log.Debug("a task that is gone was not forgotten", "error", err) // it expires
		}
		return nil
	}
	if e != nil {
		at := wire.Quote(rec.Created.UTC().Format(time.RFC3339))
		return wire.Object{{Key: "taskId", Value: wire.Quote(outward)}, {Key: "status", Value: json.RawMessage(`"working"`)},
			{Key: "statusMessage", Value: wire.Quote("its present state is not known: " + e.Message)},
			{Key: "createdAt", Value: at}, {Key: "lastUpdatedAt", Value: at}, {Key: "ttl", Value: json.RawMessage(`null`)}}.Bytes()
	}
	o, err := wire.ParseObject(result)
	if err != nil {
		return nil
	}
	return o.Without("_meta", "resultType").SetString("taskId", outward).Bytes()
}

// relatedTask gives the id of the task that a message says it belongs to
// (2025-11-25, related-task in _meta) in other words.
func relatedTask(raw json.RawMessage, f func(id string) string) json.RawMessage {
	if !strings.Contains(string(raw), metaRelated) {
		return raw
	}
	related, err := wire.ParseObject(wire.Meta(raw, metaRelated))
	if err != nil || related.String("taskId") == "" {
		return raw
	}
	out, err := wire.SetMeta(raw, map[string]json.RawMessage{metaRelated: related.SetString("taskId", f(related.String("taskId"))).Bytes()})
	if err != nil {
		return raw
	}
	return out
}

// taskNotice is a notification of a server in the words of its client.
func taskNotice(user, server, method string, params json.RawMessage) json.RawMessage {
	if method == "notifications/tasks/status" || method == "notifications/tasks" {
		if o, err := wire.ParseObject(params); err == nil && o.String("taskId") != "" {
			return replaced(params, o, "taskId", wire.Quote(outwardTask(user, server, o.String("taskId"))))
		}
	}
	return relatedTask(params, func(id string) string { return outwardTask(user, server, id) })
}

// taskTerms puts what a server says and asks about its tasks in the words of
// the client, and the client's answers back.
func taskTerms(user, server string, notify func(string, json.RawMessage), ask asker) (func(string, json.RawMessage), asker) {
	if notify != nil {
		plain := notify
		notify = func(method string, params json.RawMessage) { plain(method, taskNotice(user, server, method, params)) }
	}
	if ask == nil {
		return notify, nil
	}
	return notify, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
		own := ""
		res, e := ask(ctx, method, relatedTask(params, func(id string) string { own = id; return outwardTask(user, server, id) }))
		if own == "" || e != nil {
			return res, e
		}
		return relatedTask(res, func(string) string { return own }), nil
	}
}

// taskSupport reports whether a tool says that its calls may become tasks.
func taskSupport(def json.RawMessage) bool {
	o, err := wire.ParseObject(def)
	if err != nil {
		return false
	}
	e, err := wire.ParseObject(o.Get("execution"))
	return err == nil && (e.String("taskSupport") == "optional" || e.String("taskSupport") == "required")
}

// wishedTask is what a client asks for a task: how long it is to be kept, and
// nothing else.
func wishedTask(raw json.RawMessage) json.RawMessage {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return nil
	}
	out := wire.Object{}
	if ttl := o.Get("ttl"); ttl != nil {
		if _, err := strconv.ParseFloat(string(ttl), 64); err == nil {
			out = append(out, wire.Field{Key: "ttl", Value: ttl})
		}
	}
	return out.Bytes()
}
