package openapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/wire"
)

// MetaHTTP is the member of a result's _meta with the status and those headers
// that say how to go on: pages, limits, places.
const MetaHTTP = "mcp-portal/http"

// maxErrorText bounds what an error result repeats of an answer, in bytes.
const maxErrorText = 16 << 10

// Answer is what a server said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Final  string // of a redirect that was not followed: where it leads
}

// Result is the answer as a CallToolResult. JSON is the structured content,
// and as it came the text; other text is text; images and sound are blocks;
// everything else is an embedded file. Statuses from 400 are errors.
func (op *Operation) Result(a Answer) json.RawMessage {
	meta := a.meta()
	if a.Status >= 400 || a.Status/100 == 3 {
		return op.failure(a, meta)
	}
	out := wire.Object{}
	block := func(o wire.Object) {
		out = append(out, wire.Field{Key: "content", Value: wire.Encode([]json.RawMessage{o.Bytes()})})
	}
	media := a.media()
	trimmed := bytes.TrimSpace(a.Body)
	switch {
	case len(trimmed) == 0:
		block(textBlock(fmt.Sprintf("HTTP %d %s", a.Status, http.StatusText(a.Status))))
		out = append(out, wire.Field{Key: "structuredContent", Value: json.RawMessage(fmt.Sprintf(`{"status":%d}`, a.Status))})
	case (isJSON(media) || media == "") && json.Valid(trimmed):
		block(textBlock(string(trimmed)))
		if trimmed[0] == '{' {
			out = append(out, wire.Field{Key: "structuredContent", Value: trimmed})
		}
	case strings.HasPrefix(media, "image/") && media != "image/svg+xml":
		block(mediaBlock("image", media, a.Body))
	case strings.HasPrefix(media, "audio/"):
		block(mediaBlock("audio", media, a.Body))
	default:
		if text, ok := a.text(media); ok {
			block(textBlock(text))
			break
		}
		file := wire.Object{{Key: "uri", Value: wire.Quote("file:///" + escapeSegment(a.filename(op)))}, {Key: "mimeType", Value: wire.Quote(media)},
			{Key: "blob", Value: wire.Quote(base64.StdEncoding.EncodeToString(a.Body))}}
		block(wire.Object{{Key: "type", Value: json.RawMessage(`"resource"`)}, {Key: "resource", Value: file.Bytes()}})
	}
	return append(out, meta).Bytes()
}

// failure is the result of a status that is no success.
func (op *Operation) failure(a Answer, meta wire.Field) json.RawMessage {
	head := fmt.Sprintf("HTTP %d %s", a.Status, http.StatusText(a.Status))
	switch {
	case a.Status/100 == 3 && a.Final != "":
		head += ": the API redirects to " + cut(a.Final, 500) + ", which was not followed"
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		head += ": the API does not let the portal's credential for it do this; an administrator can look at the server's bearer, headers or auth"
	case a.Status == http.StatusTooManyRequests:
		head += ": too many requests"
		if after := a.Header.Get("Retry-After"); after != "" {
			head += ", retry after " + cut(after, 40)
		}
	case a.Status >= 500 && !Safe(op.Method):
		head += ": it may have been carried out. Check before calling it again"
	}
	status := wire.Object{{Key: "status", Value: wire.Encode(a.Status)}}
	text := head
	if media := a.media(); len(bytes.TrimSpace(a.Body)) > 0 {
		body, ok := a.text(media)
		if !ok {
			body = fmt.Sprintf("(%d bytes of %s)", len(a.Body), media)
		}
		body = cut(strings.TrimSpace(body), maxErrorText)
		text += "\n" + body
		value := wire.Quote(body)
		if json.Valid([]byte(body)) {
			value = json.RawMessage(body)
		}
		status = append(status, wire.Field{Key: "body", Value: value})
	}
	return wire.Object{{Key: "content", Value: wire.Encode([]json.RawMessage{textBlock(text).Bytes()})}, {Key: "structuredContent", Value: status.Bytes()},
		{Key: "isError", Value: json.RawMessage("true")}, meta}.Bytes()
}

// Refusal is the result of a call that was not sent since its arguments do not
// fit.
func (op *Operation) Refusal(err error) json.RawMessage {
	text := fmt.Sprintf("Nothing was sent to %s %s: %v.", op.Method, op.Path, err)
	return wire.Object{{Key: "content", Value: wire.Encode([]json.RawMessage{textBlock(text).Bytes()})}, {Key: "isError", Value: json.RawMessage("true")}}.Bytes()
}

func textBlock(text string) wire.Object {
	return wire.Object{{Key: "type", Value: json.RawMessage(`"text"`)}, {Key: "text", Value: wire.Quote(text)}}
}

func mediaBlock(kind, media string, data []byte) wire.Object {
	return wire.Object{{Key: "type", Value: wire.Quote(kind)}, {Key: "data", Value: wire.Quote(base64.StdEncoding.EncodeToString(data))}, {Key: "mimeType", Value: wire.Quote(media)}}
}

func (a Answer) media() string {
	t, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		t, _, _ = strings.Cut(a.Header.Get("Content-Type"), ";")
		t = strings.ToLower(strings.TrimSpace(t))
	}
	return t
}

// text is the body as text; false: it is none.
func (a Answer) text(media string) (string, bool) {
	_, params, _ := mime.ParseMediaType(a.Header.Get("Content-Type")) // none: UTF-8
	if c := strings.ToLower(params["charset"]); c == "iso-8859-1" || c == "latin1" {
		var b strings.Builder
		for _, c := range a.Body {
			b.WriteRune(rune(c))
		}
		return b.String(), true
	}
	if !utf8.Valid(a.Body) || bytes.IndexByte(a.Body, 0) >= 0 {
		return "", false
	}
	return string(a.Body), media == "" || isJSON(media) || isText(media)
}

// filename is the one that the server gives its answer, else that of the tool.
func (a Answer) filename(op *Operation) string {
	if _, p, err := mime.ParseMediaType(a.Header.Get("Content-Disposition")); err == nil && p["filename"] != "" {
		return p["filename"][strings.LastIndexAny(p["filename"], `/\`)+1:]
	}
	return op.Name
}

// meta are the headers that matter to whoever goes on from an answer.
func (a Answer) meta() wire.Field {
	o := wire.Object{{Key: "status", Value: wire.Encode(a.Status)}}
	for _, h := range []string{"Link", "X-Next-Page", "X-Page", "X-Per-Page", "X-Total", "X-Total-Pages", "X-Total-Count", "Content-Range", "ETag", "Location", "Retry-After",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "X-Request-Id"} {
		v, there := strings.Join(a.Header.Values(h), ", "), len(a.Header.Values(h)) > 0
		if there && (v != "" || h == "X-Next-Page") && len(v) <= 4096 && utf8.ValidString(v) {
			o = append(o, wire.Field{Key: strings.ToLower(h), Value: wire.Quote(v)})
		}
	}
	return wire.Field{Key: "_meta", Value: wire.Object{{Key: MetaHTTP, Value: o.Bytes()}}.Bytes()}
}
