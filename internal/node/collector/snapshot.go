package collector

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
)

// MaxJSONBytes bounds the JSON of the snapshots of a [Runner]: heartbeats with
// everything else in them stay below what a cell takes (16 KiB).
const MaxJSONBytes = 12 << 10

// Snapshot holds the figures by type. One that a [Runner] gave out never changes and
// must not be changed.
type Snapshot map[string]Metrics

// AppendJSON appends the snapshot as a JSON object of objects. Types and fields are in
// order, so that equal snapshots give equal bytes. Values that are no JSON (NaN,
// infinities, types that Metrics does not have) are left out.
func (s Snapshot) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, name), ':')
		dst = s[name].appendJSON(dst)
	}
	return append(dst, '}')
}

// Flat returns the values by "type.field", such as "memory.usage". A nil or empty
// snapshot gives an empty map. The map is the caller's.
func (s Snapshot) Flat() map[string]any {
	n := 0
	for _, m := range s {
		n += len(m)
	}
	flat := make(map[string]any, n)
	for name, m := range s {
		for field, v := range m {
			flat[name+"."+field] = v
		}
	}
	return flat
}

func (m Metrics) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for _, field := range slices.Sorted(maps.Keys(m)) {
		v, ok := scalar(m[field])
		if !ok {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(appendText(dst, field), ':')
		dst = appendValue(dst, v)
	}
	return append(dst, '}')
}

// scalar brings a value to one of float64, int64, bool and string.
func scalar(v any) (any, bool) {
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

// appendValue takes what scalar gives.
func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case float64:
		format := byte('f')
		if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
			format = 'e'
		}
		return strconv.AppendFloat(dst, v, format, -1, 64)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendText(dst, v)
	default:
		return append(dst, "null"...) // not reached
	}
}

func appendText(dst []byte, s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...) // not reached: any string can be marshalled
	}
	return append(dst, raw...)
}

// equal compares snapshots that hold what scalar gives.
func (s Snapshot) equal(other Snapshot) bool {
	return maps.EqualFunc(s, other, func(a, b Metrics) bool { return maps.Equal(a, b) })
}
