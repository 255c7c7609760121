package worker

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"

	"github.com/dop251/goja"
)

// binary writes buffers of bytes as base64 and other typed arrays as numbers.
func (w *writer) binary(o *goja.Object, depth int) bool {
	typ := o.ExportType()
	isBuffer := typ == typeBuffer
	if !isBuffer && (typ == nil || typ.Kind() != reflect.Slice || !numeric(typ.Elem().Kind())) {
		return false
	}
	if w.strict {
		w.odd("binary data", "pass base64 text, such as bytes.toBase64()")
	}
	var bytes []byte
	switch x := o.Export().(type) {
	case goja.ArrayBuffer:
		bytes = x.Bytes()
	case []byte:
		bytes = x
	default:
		w.array(o, depth)
		return true
	}
	n := len(bytes)
	w.b = append(w.b, `{"$binary":"`...)
	w.b = base64.StdEncoding.AppendEncode(w.b, bytes[:min(n, maxBinary)])
	w.b = append(w.b, `","bytes":`...)
	w.b = strconv.AppendInt(w.b, int64(n), 10)
	w.b = append(w.b, '}')
	return true
}

func numeric(k reflect.Kind) bool {
	return k >= reflect.Int && k <= reflect.Float64 && k != reflect.Uintptr
}

// block takes a content block (image, audio, resource) out of the value: it
// goes back beside the value, not as text inside it.
func (w *writer) block(o *goja.Object) bool {
	str := func(o *goja.Object, name string) string {
		if v := o.Get(name); v != nil && goja.IsString(v) {
			return v.String()
		}
		return ""
	}
	var what string
	size := 0
	switch kind := str(o, "type"); kind {
	case "image", "audio":
		data, mime := str(o, "data"), str(o, "mimeType")
		if data == "" || mime == "" {
			return false
		}
		what, size = kind+" "+mime, len(data)
	case "resource":
		res, ok := o.Get("resource").(*goja.Object)
		if !ok || str(res, "uri") == "" {
			return false
		}
		what, size = "resource "+clip(str(res, "uri"), 200), len(str(res, "text"))+len(str(res, "blob"))
	case "resource_link":
		if str(o, "uri") == "" || str(o, "name") == "" {
			return false
		}
		what = "resource link " + clip(str(o, "uri"), 200)
	default:
		return false
	}
	inner := newWriter(w.vm, w.blockLeft)
	if size <= w.blockLeft {
		inner.members(o, 0)
	}
	if size > w.blockLeft || inner.cut {
		w.cut = true
		w.text(fmt.Sprintf("[%s left out: its %d bytes are more than the %d that may still be returned; return fewer or smaller ones]", what, size, w.blockLeft))
		return true
	}
	w.blockLeft -= len(inner.b)
	w.blocks = append(w.blocks, inner.b)
	w.text(fmt.Sprintf("[%s: content block %d]", what, len(w.blocks)))
	return true
}
