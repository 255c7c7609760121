package config

import (
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[Secret]()
	serverType   = reflect.TypeFor[Server]()
)

// scalar fills one value from a scalar node: substitution, then the exact
// type, then the limit of its key.
func (d *decoder) scalar(n ast.Node, v reflect.Value, p place, start position) {
	text, written, fromEnv, ok := d.text(n, v, p, start)
	if !ok {
		return
	}
	d.written[p.path] = written
	// Values that came out of the environment are not repeated in messages:
	// what stands in the file is enough to find the mistake.
	shown := quote(written)
	_, quoted := n.(*ast.StringNode)
	if _, literal := n.(*ast.LiteralNode); literal {
		quoted = true
	}
	switch {
	case v.Type() == secretType:
		d.secret(n, v, p, start, text, written, quoted)
	case v.Type() == timeType:
		t, err := parseTime(text)
		if err != nil || !quoted {
			d.fail(start, p.path, "%s is not a date; write 2027-01-31 or 2027-01-31T12:00:00Z", shown)
			return
		}
		v.Set(reflect.ValueOf(t))
	case v.Type() == durationType:
		d.duration(v, p, start, text, shown, quoted)
	case v.Kind() == reflect.String:
		if !quoted {
			if p.path == "listen" {
				d.fail(start, p.path, "must be an address, not %s; write host:port, like 127.0.0.1:%s", kindOf(n), strings.Trim(shown, `"`))
				return
			}
			d.fail(start, p.path, "must be text, not %s; put it in quotes: \"%s\"", kindOf(n), strings.Trim(shown, `"`))
			return
		}
		d.string(v, p, start, text, shown)
	case v.Kind() == reflect.Bool:
		d.bool(n, v, p, start, text, shown, fromEnv)
	default:
		d.number(n, v, p, start, text, shown, fromEnv)
	}
}

// text returns the text of a scalar, expanded and as written.
func (d *decoder) text(n ast.Node, v reflect.Value, p place, start position) (text, written string, fromEnv, ok bool) {
	switch x := n.(type) {
	case *ast.NullNode:
		d.fail(start, p.path, "no value; write one or remove the key")
		return "", "", false, false
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		d.fail(start, p.path, "must be %s, not %s; write a single value", wanted(v.Type()), kindOf(n))
		return "", "", false, false
	case *ast.LiteralNode:
		written = x.Value.Value
	case *ast.StringNode:
		written = x.Value
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		w := n.GetToken().Value
		return w, w, false, true
	default:
		d.fail(start, p.path, "must be %s; write a single value", wanted(v.Type()))
		return "", "", false, false
	}
	text, fromEnv, unset := expand(written, d.env)
	for _, name := range unset {
		d.fail(start, p.path, "the environment variable %s is not set; set it, or write $${%s} for the literal text", name, name)
	}
	return text, written, fromEnv, len(unset) == 0
}

// wanted names a type for people.
func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration like 30s"
	case t == timeType:
		return "a date like 2027-01-31"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return "a whole number"
	default:
		return "text"
	}
}

func (d *decoder) secret(n ast.Node, v reflect.Value, p place, start position, text, written string, quoted bool) {
	if !quoted {
		d.fail(start, p.path, "must be text, not %s; put the value in quotes", kindOf(n))
		return
	}
	if text == written && !strings.HasPrefix(written, "file:") && !strings.HasPrefix(written, "exec:") {
		d.plain[p.path] = p
	}
	if strings.HasPrefix(written, "file:") {
		name := strings.TrimPrefix(text, "file:")
		content, sum, err := readSecretFile(name)
		d.sources[name] = sum
		if err != nil {
			d.fail(start, p.path, "%v", err)
			return
		}
		text = content
	}
	if strings.HasPrefix(written, "exec:") {
		command := strings.TrimPrefix(text, "exec:")
		argv, err := parseExec(command)
		if err == nil {
			var sum Secret
			text, sum, err = runSecret(argv)
			d.sources["exec:"+command] = sum
		}
		if err != nil {
			d.fail(start, p.path, "%v", err)
			return
		}
	}
	if text == "" && !d.limits[p.generic[:max(0, strings.LastIndex(p.generic, "."))]].empty {
		d.fail(start, p.path, "the secret is empty; give it a value or remove the key")
		return
	}
	if strings.ContainsRune(text, 0) {
		d.fail(start, p.path, "the secret contains a NUL character; write it as text")
		return
	}
	v.SetString(text)
}

// elsewhereSaid are words for values as other programs, or their users, say
// them.
var elsewhereSaid = map[string]string{
	"http": "streamable-http", "streamable": "streamable-http", "streamablehttp": "streamable-http", "streamableHttp": "streamable-http",
	"ask": "approve", "block": "deny", "reject": "deny", "permit": "allow", "delete": "destructive",
}

func (d *decoder) string(v reflect.Value, p place, start position, text, shown string) {
	base := strings.TrimSuffix(p.generic, "[]")
	lim, own := d.limits[p.generic]
	if !own {
		lim = d.limits[base]
	}
	switch {
	case text == "" && lim.empty && base != p.generic:
	case text == "" && base != p.generic:
		d.fail(start, p.path, "an empty list item; write a value or remove the item")
		return
	case text == "":
		d.fail(start, p.path, "no value; write one or remove the key")
		return
	case strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) >= 0:
		d.fail(start, p.path, "a control character in the text; remove it")
		return
	case lim.enum != nil && !contains(lim.enum, text):
		hint := ""
		near := nearest(text, lim.enum)
		if meant := elsewhereSaid[text]; contains(lim.enum, meant) {
			near = meant
		}
		if near != "" {
			hint = `did you mean "` + near + `"? `
		}
		d.fail(start, p.path, "%s is not a valid value; %suse %s", shown, hint, choice(lim.enum))
		return
	case lim.pattern != nil && !lim.pattern.MatchString(text):
		d.fail(start, p.path, "%s", lim.shape)
		return
	case lim.glob:
		if what := checkGlob(text); what != "" {
			d.fail(start, p.path, "%s", what)
			return
		}
	}
	v.SetString(text)
}

func contains(words []string, w string) bool {
	for _, x := range words {
		if x == w {
			return true
		}
	}
	return false
}

func (d *decoder) bool(n ast.Node, v reflect.Value, p place, start position, text, shown string, fromEnv bool) {
	if _, plain := n.(*ast.BoolNode); plain || fromEnv {
		switch text {
		case "true", "True", "TRUE":
			v.SetBool(true)
			return
		case "false", "False", "FALSE":
			v.SetBool(false)
			return
		}
	}
	switch strings.ToLower(text) {
	case "true", "yes", "on", "y", "1":
		d.fail(start, p.path, "%s is not a boolean; write true without quotes", shown)
	case "false", "no", "off", "n", "0":
		d.fail(start, p.path, "%s is not a boolean; write false without quotes", shown)
	default:
		d.fail(start, p.path, "must be true or false, not %s; write true or false", shown)
	}
}

func (d *decoder) number(n ast.Node, v reflect.Value, p place, start position, text, shown string, fromEnv bool) {
	_, plain := n.(*ast.IntegerNode)
	digits := strings.ReplaceAll(text, "_", "")
	i, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !plain && !fromEnv && err == nil:
		d.fail(start, p.path, "must be a whole number, not text; write %d without quotes", i)
		return
	case err != nil || !plain && !fromEnv:
		fix := "write digits only, like 8"
		if sizePattern.MatchString(text) {
			fix = "write the number without a unit"
		}
		d.fail(start, p.path, "must be a whole number, not %s; %s", shown, fix)
		return
	case v.Kind() == reflect.Int && (i > math.MaxInt32 || i < math.MinInt32):
		d.fail(start, p.path, "%d is out of range; write a smaller number", i)
		return
	}
	lim := d.limits[p.generic]
	if i < lim.min || lim.max > 0 && i > lim.max {
		d.fail(start, p.path, "%d is out of range; write a number from %d to %d", i, lim.min, lim.max)
		return
	}
	v.SetInt(i)
}

var sizePattern = regexp.MustCompile(`(?i)^[0-9]+ *([kmg]i?)?b?$`)

func (d *decoder) duration(v reflect.Value, p place, start position, text, shown string, quoted bool) {
	if i, err := strconv.ParseFloat(text, 64); err == nil {
		d.fail(start, p.path, "%s has no unit; write %ss for seconds, or use ms, m or h", shown, strconv.FormatFloat(i, 'f', -1, 64))
		return
	}
	if !quoted {
		d.fail(start, p.path, "must be a duration, not %s; write it like 30s, 5m or 12h", shown)
		return
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 32); err == nil && n >= 0 {
			d.fail(start, p.path, "%s: days are not a unit; write %dh", shown, 24*n)
			return
		}
	}
	dur, err := time.ParseDuration(text)
	if err != nil {
		d.fail(start, p.path, "%s is not a duration; write it like 30s, 5m or 12h", shown)
		return
	}
	lim := d.limits[p.generic]
	if dur < lim.shortest || dur < 0 {
		d.fail(start, p.path, "%s is too short; write %s or more", shown, short(lim.shortest))
		return
	}
	if lim.longest > 0 && dur > lim.longest {
		d.fail(start, p.path, "%s is too long; write %s or less", shown, short(lim.longest))
		return
	}
	v.SetInt(int64(dur))
}

// short writes a duration as a person would: 15m and not 15m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseTime reads a moment, or a date meaning the start of that day in UTC.
func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Parse(time.DateOnly, s)
}
