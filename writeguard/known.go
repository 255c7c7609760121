package writeguard

import "sync"

// known remembers what does not change from call to call of one tool under one
// configuration: its classification, since reading a long description takes
// longer than all rules, and the rules that can match it, so that most of a
// long policy is not looked at. It is safe for concurrent use.
type known struct {
	mu   sync.RWMutex
	seen map[toolKey]*knownTool
}

// toolKey is everything that a classification depends on besides the
// configuration.
type toolKey struct {
	server, tool, description, annotations string
	line                                   int // of its classes
}

type knownTool struct {
	class Classification
	rules []*rule // whose servers, tools and class match, in order
}

// knownMax bounds how many tools are remembered.
const knownMax = 20_000

// tool returns what is known of the tool that a call names.
func (p *Policy) tool(c *Call) *knownTool { return p.toolAt(c, p.line(c)) }

// toolAt is tool for a call that falls under a line of the tool's classes.
func (p *Policy) toolAt(c *Call, line int) *knownTool {
	m, key := &p.known, toolKey{c.Server, c.Tool, c.Description, string(c.Annotations), line}
	m.mu.RLock()
	t, ok := m.seen[key]
	m.mu.RUnlock()
	if ok {
		return t
	}
	t = p.classed(c, p.underLine(c, Classify(*c, p.cfg), line))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil || len(m.seen) >= knownMax {
		m.seen = map[toolKey]*knownTool{}
	}
	m.seen[key] = t
	return t
}

// classed is a tool of that class with the rules that can match it.
func (p *Policy) classed(c *Call, k Classification) *knownTool {
	t := &knownTool{class: k}
	for i := range p.rules {
		if r := &p.rules[i]; r.matchesTool(c, &k) {
			t.rules = append(t.rules, r)
		}
	}
	return t
}
