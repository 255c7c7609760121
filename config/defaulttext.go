package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// defaultText writes a default as it would stand in the file; empty for a
// zero value, which means that there is none.
func defaultText(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		if v.Int() == 0 {
			return ""
		}
		return short(time.Duration(v.Int()))
	case v.Type() == timeType, v.Kind() == reflect.Struct, v.Kind() == reflect.Map:
		return ""
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.Kind() == reflect.Int, v.Kind() == reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case v.Kind() == reflect.Slice && v.Len() > 0:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = v.Index(i).String()
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return ""
}
