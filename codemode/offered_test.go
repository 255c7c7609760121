package codemode

import (
	"context"
	"fmt"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// A worker is sent its user's tools once, and again when they have changed: what
// a script can call is what its own run was given.
func TestToolsOfARunAreItsOwn(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"a_t": structured("1"), "b_t": structured("2")})
	const code = "return [typeof a === 'object' && typeof codemode.a_t({}).then, typeof b === 'object' && typeof codemode.b_t({}).then]"
	both, onlyA, onlyB := tools("a_t", "b_t"), tools("a_t"), tools("b_t")
	pid := 0
	for i, c := range []struct {
		tools []Tool
		want  string
	}{
		{both, `["function","function"]`}, {both, `["function","function"]`}, {onlyA, `["function",false]`}, {onlyB, `[false,"function"]`},
		{nil, `[false,false]`}, {nil, `[false,false]`}, {both, `["function","function"]`},
	} {
		wantValue(t, run(t, p, host, code, c.tools...), c.want)
		now := pidOf(t, p, "u")
		if i > 0 && now != pid {
			t.Error("another worker: nothing was tested")
		}
		pid = now
	}
}

// However often it is asked, and whatever was looked up before.
func TestOnlyOfferedToolsAreKnown(t *testing.T) {
	var w process
	if w.offer(tools("a_t", "b_t")) || !w.offer(tools("a_t", "b_t")) || w.offer(tools("b_t", "a_t")) {
		t.Error("the same tools are those of the run before, others are not")
	}
	for i := range 20 {
		for name, want := range map[string]bool{"a_t": true, "b_t": true, "a_": false, "c_t": false, "": false} {
			if got := w.offered.has(name); got != want {
				t.Errorf("question %d: %q is offered: %v", i, name, got)
			}
		}
	}
}

// Every spelling finds the tool among thousands, at the first look and when
// there is an index.
func TestToolsAreFoundAmongThousands(t *testing.T) {
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("my-server%d_tool_%d", i/50, i))
	}
	p := testPool(t, func(c *config.Code) { c.MaxCalls = 2000 })
	host := answers(map[string]string{"my-server39_tool_1999": structured("true")})
	wantValue(t, run(t, p, host, `const out = []
for (let i = 0; i < 12; i++) out.push(await codemode.call("my-server39_tool_1999"), await codemode.call("my$server39.tool_1999"), await codemode.call("MyServer39_Tool1999"))
out.push(await codemode.my$server39_tool_1999(), await my$server39.tool_1999(), await codemode.my$server39.tool_1999())
return [out.length, out.every(x => x === true), Object.keys(my$server39).length, "my$server3_tool_150" in codemode, "my$server3_tool_200" in codemode]`, tools(names...)...), `[39,true,50,true,false]`)
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "await codemode.call('my-server39_tool_2000')", Tools: tools(names...)}, host)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindException, "there is no tool")
}
