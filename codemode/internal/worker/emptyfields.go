package worker

import (
	"slices"
)

// absent remembers which fields of a value were undefined wherever they stood:
// they are not in JSON, and a field with a wrong name would vanish in silence.
type absent struct {
	defined, undefined map[string]bool
	lists              int // of which every item was undefined
	order              []string
}

// maxAbsent is how many names are remembered; more belong to no record.
const maxAbsent = 200

func newAbsent() *absent {
	return &absent{defined: map[string]bool{}, undefined: map[string]bool{}}
}

func (a *absent) field(name string, isUndefined bool) {
	if a == nil {
		return
	}
	set := a.defined
	if isUndefined {
		set = a.undefined
	}
	if set[name] || len(set) >= maxAbsent {
		return
	}
	set[name] = true
	if isUndefined {
		a.order = append(a.order, name)
	}
}

// never are the fields that had no value anywhere.
func (a *absent) never() []string {
	if len(a.defined) >= maxAbsent {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.order), func(name string) bool { return a.defined[name] })
}
