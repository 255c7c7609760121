package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// pager is a tool over the numbers 1 to 7 that answers in some style.
type pager struct {
	name   string
	params string // properties of the input schema
	page   func(args map[string]any) string
}

func number(args map[string]any, name string, otherwise int) int {
	switch v := args[name].(type) {
	case float64:
		return int(v)
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return n
		}
	}
	return otherwise
}

// slice is a part of the numbers, as JSON objects with an id.
func slice(from, n int) (list string, left int) {
	var out []string
	for i := from; i < from+n && i < 7; i++ {
		out = append(out, fmt.Sprintf(`{"id":%d}`, i+1))
	}
	return "[" + strings.Join(out, ",") + "]", max(0, 7-from-n)
}

var pagers = []pager{
	{"page numbers with their number", `"page":{"type":"integer"},"per_page":{"type":"integer"}`, func(a map[string]any) string {
		n := number(a, "page", 1)
		list, _ := slice((n-1)*3, 3)
		return fmt.Sprintf(`{"result":%s,"result_info":{"page":%d,"total_pages":3,"count":3,"total_count":7}}`, list, n)
	}},
	{"cursor, null at the end", `"cursor":{"type":"string"}`, func(a map[string]any) string {
		list, left := slice(number(a, "cursor", 0), 2)
		next := "null"
		if left > 0 {
			next = fmt.Sprintf(`"%d"`, 7-left)
		}
		return fmt.Sprintf(`{"items":%s,"next_cursor":%s}`, list, next)
	}},
	{"cursor, gone at the end, camel case", `"pageToken":{"type":"string"}`, func(a map[string]any) string {
		list, left := slice(number(a, "pageToken", 0), 3)
		if left > 0 {
			return fmt.Sprintf(`{"files":%s,"nextPageToken":"%d"}`, list, 7-left)
		}
		return fmt.Sprintf(`{"files":%s}`, list)
	}},
	{"cursor, empty at the end, in an object", `"cursor":{"type":"string"},"limit":{"type":"integer"}`, func(a map[string]any) string {
		list, left := slice(number(a, "cursor", 0), 3)
		next := ""
		if left > 0 {
			next = strconv.Itoa(7 - left)
		}
		return fmt.Sprintf(`{"ok":true,"messages":%s,"response_metadata":{"next_cursor":"%s"}}`, list, next)
	}},
	{"paging.next.after", `"after":{"type":"string"},"limit":{"type":"integer"}`, func(a map[string]any) string {
		list, left := slice(number(a, "after", 0), 3)
		if left > 0 {
			return fmt.Sprintf(`{"results":%s,"paging":{"next":{"after":"%d","link":"https://x.example/?after=%d"}}}`, list, 7-left, 7-left)
		}
		return fmt.Sprintf(`{"results":%s}`, list)
	}},
	{"has_more and the last id", `"starting_after":{"type":"integer"},"limit":{"type":"integer","maximum":3}`, func(a map[string]any) string {
		list, left := slice(number(a, "starting_after", 0), number(a, "limit", 1))
		return fmt.Sprintf(`{"object":"list","data":%s,"has_more":%v}`, list, left > 0)
	}},
	{"has_more and page numbers", `"page":{"type":"integer"}`, func(a map[string]any) string {
		list, left := slice((number(a, "page", 1)-1)*3, 3)
		return fmt.Sprintf(`{"rows":%s,"hasMore":%v}`, list, left > 0)
	}},
	{"Link header", `"page":{"type":"integer"},"per_page":{"type":"integer"}`, func(a map[string]any) string {
		n := number(a, "page", 1)
		list, left := slice((n-1)*3, 3)
		link := fmt.Sprintf(`<https://api.example/items?page=%d>; rel=\"prev\", <https://api.example/items?page=1>; rel=\"first\"`, n-1)
		if left > 0 {
			link = fmt.Sprintf(`<https://api.example/items?page=%d&per_page=3>; rel=\"next\", <https://api.example/items?page=3>; rel=\"last\"`, n+1)
		}
		return fmt.Sprintf(`{"items":%s,"headers":{"link":"%s"}}`, list, link)
	}},
	{"address of the next page", `"offset":{"type":"integer"},"limit":{"type":"integer"}`, func(a map[string]any) string {
		list, left := slice(number(a, "offset", 0), 3)
		next := "null"
		if left > 0 {
			next = fmt.Sprintf(`"/v1/items?offset=%d&limit=3"`, 7-left)
		}
		return fmt.Sprintf(`{"count":7,"next":%s,"previous":null,"results":%s}`, next, list)
	}},
	{"next page as a number", `"page":{"type":"integer"}`, func(a map[string]any) string {
		n := number(a, "page", 1)
		list, left := slice((n-1)*3, 3)
		next := "null"
		if left > 0 {
			next = strconv.Itoa(n + 1)
		}
		return fmt.Sprintf(`{"data":%s,"meta":{"next_page":%s}}`, list, next)
	}},
	{"nodes and pageInfo", `"first":{"type":"integer"},"after":{"type":"string"}`, func(a map[string]any) string {
		list, left := slice(number(a, "after", 0), 3)
		return fmt.Sprintf(`{"issues":{"nodes":%s,"pageInfo":{"hasNextPage":%v,"endCursor":"%d"}}}`, list, left > 0, 7-left)
	}},
	{"bare list, short at the end", `"page":{"type":"integer"},"per_page":{"type":"integer","default":3}`, func(a map[string]any) string {
		list, _ := slice((number(a, "page", 1)-1)*3, 3)
		return list
	}},
	{"bare list, empty at the end", `"page":{"type":"integer"}`, func(a map[string]any) string {
		list, _ := slice((number(a, "page", 1)-1)*7, 7)
		return list
	}},
	{"offset and total", `"offset":{"type":"integer"},"limit":{"type":"integer"}`, func(a map[string]any) string {
		list, _ := slice(number(a, "offset", 0), 3)
		return fmt.Sprintf(`{"total":7,"entries":%s}`, list)
	}},
	{"offset called a cursor", `"offset":{"type":"integer"},"limit":{"type":"integer"}`, func(a map[string]any) string {
		list, left := slice(number(a, "offset", 0), 3)
		if left > 0 {
			return fmt.Sprintf(`{"total":7,"results":%s,"paging":{"next":{"after":"%d"}}}`, list, 7-left)
		}
		return fmt.Sprintf(`{"total":7,"results":%s}`, list)
	}},
	{"pages from zero", `"page":{"type":"integer","minimum":0,"default":0}`, func(a map[string]any) string {
		n := number(a, "page", 0)
		list, _ := slice(n*3, 3)
		return fmt.Sprintf(`{"content":%s,"page":%d,"totalPages":3}`, list, n)
	}},
	{"lines of JSON, the last one says how to go on", `"from":{"type":"string"},"page_token":{"type":"string"}`, func(a map[string]any) string {
		from := number(a, "page_token", 0)
		list, left := slice(from, 3)
		lines := strings.NewReplacer("[", "", "]", "", "},{", "}\n{").Replace(list)
		if left > 0 {
			lines += fmt.Sprintf("\r\n\n{\"next_page_token\":\"%d\"}", 7-left)
		}
		return lines + "\n"
	}},
	{"token gone at the end, beside a time and page numbers", `"from":{"type":"string"},"page":{"type":"integer"},"pageToken":{"type":"string"}`, func(a map[string]any) string {
		list, left := slice(number(a, "pageToken", 0), 3)
		if left > 0 {
			return fmt.Sprintf(`{"files":%s,"nextPageToken":"%d"}`, list, 7-left)
		}
		return fmt.Sprintf(`{"files":%s}`, list)
	}},
	{"lines of JSON, the token among other words", `"cursor":{"type":"string"}`, func(a map[string]any) string {
		from := number(a, "cursor", 0)
		list, left := slice(from, 4)
		return strings.NewReplacer("[", "", "]", "", "},{", "}\n{").Replace(list) + fmt.Sprintf("\n{\"has_more\":%v,\"next_cursor\":\"%d\",\"total\":7}", left > 0, 7-left)
	}},
	{"one page only", `"q":{"type":"string"}`, func(map[string]any) string {
		list, _ := slice(0, 7)
		return `{"items":` + list + `}`
	}},
}

// pagedHost answers calls of one tool, s_list, in the style of a pager.
func pagedHost(p pager) *fakeHost {
	return &fakeHost{
		query: func(_ context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"name":"s_list","inputSchema":{"type":"object","properties":{` + p.params + `}}}`), nil
		},
		call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
			var args map[string]any
			if err := json.Unmarshal(c.Arguments, &args); err != nil {
				return nil, err
			}
			for k := range args {
				if !strings.Contains(p.params, `"`+k+`"`) {
					return nil, &HostError{Code: "tool_error", Message: "unknown argument " + k}
				}
			}
			body := p.page(args)
			if body == "" {
				return nil, &HostError{Code: "tool_error", Message: "quota"}
			}
			if strings.HasPrefix(body, "[") || strings.HasSuffix(body, "\n") || strings.Contains(body, "}\n{") {
				return json.RawMessage(text(body)), nil
			}
			return json.RawMessage(`{"structuredContent":` + body + `}`), nil
		},
	}
}

func TestPaginateReadsEveryStyle(t *testing.T) {
	p := testPool(t, nil)
	for _, style := range pagers {
		t.Run(style.name, func(t *testing.T) {
			host := pagedHost(style)
			wantValue(t, run(t, p, host, `(await codemode.paginate(codemode.s_list, {})).map(x => x.id)`, tools("s_list")...), "[1,2,3,4,5,6,7]")
			wantValue(t, run(t, p, host, `(await codemode.paginate("s.list")).length`, tools("s_list")...), "7")
			wantValue(t, run(t, p, host, `(await codemode.paginate(s.list, {}, {max: 2})).length`, tools("s_list")...), "2")
		})
	}
}

// It never ends early in silence, and never turns in a circle.
func TestPaginateSaysWhatItCannotDo(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct {
		name, params, code, kind, want string
		page                           func(map[string]any) string
	}{
		{"no argument for the cursor", `"q":{"type":"string"}`, `codemode.paginate(s.list)`, kindException, `{arg: "…"}`, func(map[string]any) string { return `{"items":[1],"next_cursor":"x"}` }},
		{"argument named by the script", `"weird":{"type":"string"}`, `codemode.paginate(s.list, {}, {arg: "weird"})`, "", "[1,2]", func(a map[string]any) string {
			if a["weird"] == nil {
				return `{"items":[1],"next_cursor":"x"}`
			}
			return `{"items":[2],"next_cursor":null}`
		}},
		{"next named by the script", `"cursor":{"type":"string"}`, `codemode.paginate(s.list, {}, {next: p => p.where.to, items: "here.are"})`, "", "[1,2]", func(a map[string]any) string {
			if a["cursor"] == nil {
				return `{"here":{"are":[1],"not":[9]},"where":{"to":"z"}}`
			}
			return `{"here":{"are":[2],"not":[9]},"where":{}}`
		}},
		{"the same cursor again", `"cursor":{"type":"string"}`, `codemode.paginate(s.list)`, kindException, "repeats itself", func(map[string]any) string { return `{"items":[1],"next_cursor":"x"}` }},
		{"several lists", `"page":{"type":"integer"}`, `codemode.paginate(s.list)`, kindException, `several lists (open, closed)`, func(map[string]any) string { return `{"open":[1],"closed":[2]}` }},
		{"text", ``, `codemode.paginate(s.list)`, kindException, "not a list", func(map[string]any) string { return `"just words"` }},
		{"no list", ``, `codemode.paginate(s.list)`, kindException, "its fields are a, b", func(map[string]any) string { return `{"a":1,"b":2}` }},
		{"more, but no way to it", `"q":{"type":"string"}`, `codemode.paginate(s.list)`, kindException, "more items", func(map[string]any) string { return `{"items":[1],"has_more":true}` }},
		{"an unknown option", ``, `codemode.paginate(s.list, {}, {limit: 3})`, kindException, "no option limit", func(map[string]any) string { return `{"items":[1]}` }},
		{"nothing given", ``, `codemode.paginate()`, kindException, "takes a tool", func(map[string]any) string { return `{}` }},
		{"a failure on the way", `"cursor":{"type":"string"}`, `codemode.paginate(s.list)`, kindException, "quota (codemode.paginate had read 1 items of 1 pages by then)", func(a map[string]any) string {
			if a["cursor"] == nil {
				return `{"items":[1],"next_cursor":"x"}`
			}
			return ""
		}},
		{"what was read before a failure", `"cursor":{"type":"string"}`, `codemode.paginate(s.list).catch(e => e.items)`, "", "[1]", func(a map[string]any) string {
			if a["cursor"] == nil {
				return `{"items":[1],"next_cursor":"x"}`
			}
			return ""
		}},
		{"a time that is no offset", `"from":{"type":"string"}`, `codemode.paginate(s.list, {from: "2026-11-29T00:00:00Z"})`, "", "[1]", func(map[string]any) string { return `{"items":[1]}` }},
		{"a tool that ignores the page", `"page":{"type":"integer"},"per_page":{"type":"integer"}`, `codemode.paginate(s.list)`, "", "[1,2]", func(map[string]any) string { return `{"items":[1,2]}` }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, p, pagedHost(pager{params: c.params, page: c.page}), "return await "+c.code, tools("s_list")...)
			if c.kind == "" {
				wantValue(t, o, c.want)
			} else {
				wantError(t, o, c.kind, c.want)
			}
			if c.name == "a tool that ignores the page" && !strings.Contains(strings.Join(o.Logs, "\n"), "same page twice") {
				t.Errorf("not said: %q", o.Logs)
			}
		})
	}
}

// A page size that a tool refuses costs a reading script nothing, is said, and
// is not tried where the call could have changed something.
func TestPaginateWithASizeThatIsRefused(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct {
		name, class, args string
		refuse            func(args map[string]any) string
		kind, want, said  string
		calls             int
	}{
		{"too large", "read", "{per_page: 100}", tooLarge, "", "[1,2,3,4,5,6,7]", "s.list refused per_page 100 (per_page must be between 1 and 3); it was read in pages of its own size", 4},
		{"of a write", "write", "{per_page: 100}", tooLarge, kindException, "per_page must be between 1 and 3", "", 1},
		{"not for its size", "read", "{per_page: 2}", func(map[string]any) string { return "no such zone" }, kindException, "no such zone", "", 2},
		{"none was wished", "read", "{}", func(map[string]any) string { return "no such zone" }, kindException, "no such zone", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			host := pagedHost(pager{params: `"page":{"type":"integer"},"per_page":{"type":"integer"}`, page: func(a map[string]any) string {
				list, left := slice((number(a, "page", 1)-1)*3, 3)
				return fmt.Sprintf(`{"rows":%s,"has_more":%v}`, list, left > 0)
			}})
			answers := host.call
			host.call = func(ctx context.Context, h HostCall) (json.RawMessage, error) {
				var args map[string]any
				if err := json.Unmarshal(h.Arguments, &args); err != nil {
					return nil, err
				}
				calls++
				if why := c.refuse(args); why != "" {
					return json.RawMessage(fmt.Sprintf(`{"isError":true,"content":[{"type":"text","text":%q}]}`, why)), nil
				}
				return answers(ctx, h)
			}
			host.query = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(fmt.Sprintf(`{"name":"s_list","class":%q,"inputSchema":{"type":"object","properties":{"page":{"type":"integer"},"per_page":{"type":"integer"}}}}`, c.class)), nil
			}
			o := run(t, p, host, `return (await codemode.paginate(s.list, `+c.args+`)).map(x => x.id)`, tools("s_list")...)
			if c.kind == "" {
				wantValue(t, o, c.want)
			} else {
				wantError(t, o, c.kind, c.want)
			}
			if logs := strings.Join(o.Logs, "\n"); (c.said == "") != (logs == "") || !strings.Contains(logs, c.said) {
				t.Errorf("said %q", logs)
			}
			if calls != c.calls {
				t.Errorf("%d calls, want %d", calls, c.calls)
			}
		})
	}
}

func tooLarge(args map[string]any) string {
	if number(args, "per_page", 3) > 3 {
		return "per_page must be between 1 and 3"
	}
	return ""
}

// A page that says it is partial is read again, and what stays partial is said:
// a sum over a part of the lines would look like a sum.
func TestPaginateReadsPartialPagesAgain(t *testing.T) {
	p := testPool(t, nil)
	lines := func(partial bool) string {
		if partial {
			return "{\"id\":1}\n{\"partial\":true,\"missing_shards\":[1,3]}\n"
		}
		return "{\"id\":1}\n{\"id\":2}\n"
	}
	object := func(partial bool) string {
		if partial {
			return `{"rows":[{"id":1}],"partial":true}`
		}
		return `{"rows":[{"id":1},{"id":2}],"partial":false}`
	}
	for _, c := range []struct {
		name, class string
		page        func(partial bool) string
		bad, calls  int // how many answers are partial first; how many calls there are
		want, said  string
	}{
		{"lines, once", "read", lines, 1, 2, "[1,2]", "page 1 of s.list was partial and was read again, whole"},
		{"object, twice", "read", object, 2, 3, "[1,2]", "read again, whole"},
		{"always", "read", lines, 99, 3, "[1]", "page 1 is partial, also when asked again: items may be missing"},
		{"no read", "write", object, 99, 1, "[1]", "page 1 is partial: items may be missing"},
		{"never", "read", object, 0, 1, "[1,2]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			host := pagedHost(pager{params: `"q":{"type":"string"}`, page: func(map[string]any) string {
				calls++
				return c.page(calls <= c.bad)
			}})
			host.query = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(fmt.Sprintf(`{"name":"s_list","class":%q,"inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`, c.class)), nil
			}
			o := run(t, p, host, `return (await codemode.paginate(s.list)).map(x => x.id)`, tools("s_list")...)
			wantValue(t, o, c.want)
			if logs := strings.Join(o.Logs, "\n"); (c.said == "") != (logs == "") || !strings.Contains(logs, c.said) {
				t.Errorf("said %q", logs)
			}
			if calls != c.calls {
				t.Errorf("%d calls, want %d", calls, c.calls)
			}
		})
	}
}
