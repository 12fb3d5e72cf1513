package collector

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Bounds of one collection.
const (
	// MaxFields is the most figures of one type.
	MaxFields = 128
	// MaxTextBytes is the longest text value; longer ones are cut.
	MaxTextBytes = 128
)

const (
	maxFieldBytes  = 64
	maxReasonBytes = 4 << 10
)

// clean copies what can be published, in the types that snapshots have, and says what
// cannot and why.
func clean(m Metrics) (cleaned Metrics, dropped []string) {
	cleaned = make(Metrics, min(len(m), MaxFields))
	for _, field := range slices.Sorted(maps.Keys(m)) {
		v, ok := scalar(m[field])
		switch {
		case len(cleaned) == MaxFields:
			return cleaned, append(dropped, "there are more than 128 fields")
		case !validField(field):
			dropped = append(dropped, "the name "+cut(field, maxFieldBytes)+" is none of a field")
			continue
		case !ok:
			dropped = append(dropped, field+" has a value that is not published: "+typeOf(m[field]))
			continue
		}
		if s, isText := v.(string); isText {
			v = cut(s, MaxTextBytes)
		}
		cleaned[field] = v
	}
	return cleaned, dropped[:min(len(dropped), 10)]
}

func typeOf(v any) string {
	if _, ok := v.(float64); ok {
		return "NaN or infinite"
	}
	if v == nil {
		return "nil"
	}
	return reflect.TypeOf(v).String()
}

func validField(name string) bool {
	if name == "" || len(name) > maxFieldBytes {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || c == '_') {
			continue
		}
		return false
	}
	return true
}

// cut is s as valid UTF-8 of at most n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
