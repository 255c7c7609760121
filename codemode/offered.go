package codemode

import "github.com/mcp-portal/mcp-portal/codemode/internal/proto"

// offered are the tools of a worker's last run. There can be thousands: a worker
// that gets the same ones again is not sent them, and only a script with many
// calls is worth an index.
type offered struct {
	list  proto.Tools // as they were sent
	asked int
	names map[string]bool // outward names; made after a few questions
}

// offer tells whether these are the tools of the worker's run before: then it
// has them.
func (p *process) offer(tools []Tool) (same bool) {
	list := make([]byte, 0, 48*len(tools))
	for i := range tools {
		list = proto.AppendTool(list, proto.Tool(tools[i]))
	}
	if p.offered != nil && string(p.offered.list) == string(list) {
		return true
	}
	p.offered = &offered{list: proto.Tools(list)}
	return false
}

// has tells whether a tool of that outward name was offered. Who asks holds the
// lock of the run's calls.
func (o *offered) has(name string) bool {
	const few = 4 // going through the list costs about a quarter of the index
	if o.asked++; o.asked > few && o.names == nil {
		o.names = map[string]bool{}
		for t := range o.list.All() {
			o.names[t.Outward] = true
		}
	}
	if o.names != nil {
		return o.names[name]
	}
	for t := range o.list.All() {
		if t.Outward == name {
			return true
		}
	}
	return false
}
