package collector

import (
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Bounds of one collection.
const (
	// MaxFields is the largest number of figures of one type.
	MaxFields = 128
	// MaxTextBytes is the longest text value; longer ones are cut.
	MaxTextBytes = 128
)

const (
	maxFieldBytes  = 64
	maxReasonBytes = 4 << 10
)

// clean copies the figures that can be published, with values of the types float64, int64, bool and
// string. dropped holds the reasons for the others.
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

// scalar converts a value to float64, int64, bool or string; ok is false if it cannot.
func scalar(v any) (out any, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case int:
		return int64(v), true
	case int64, bool, string:
		return v, true
	default:
		return nil, false
	}
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

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

func validField(name string) bool { return fieldName.MatchString(name) }

// cut returns s as valid UTF-8 of at most n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
