package chain

import (
	"math"
	"strconv"
)

// attribute is a declared attribute.
type attribute struct {
	name string
	kind Type
}

// Why an attribute is unknown.
const (
	whyMissing = "the attribute is missing"
	whyType    = "the attribute has another type than declared"
	whyLong    = "the attribute is too long"
)

// text returns an attribute as a list or a hash takes it. why is not empty if it is unknown.
func (a attribute) text(s *Subject) (text, why string) {
	if a.name == Key {
		if s.Key == "" {
			return "", whyMissing
		}
		return s.Key, ""
	}
	v := s.Attributes[a.name]
	if a.kind == String {
		text, ok := v.(string)
		switch {
		case ok:
			return text, ""
		case v == nil:
			return "", whyMissing
		default:
			return "", whyType
		}
	}
	v, why = a.value(s)
	if why != "" {
		return "", why
	}
	return strconv.Itoa(v.(int)), ""
}

// value returns an attribute as expressions take it: string, int, float64 or bool.
func (a attribute) value(s *Subject) (v any, why string) {
	if a.name == Key {
		if s.Key == "" {
			return nil, whyMissing
		}
		v = s.Key
	} else if v = s.Attributes[a.name]; v == nil {
		return nil, whyMissing
	}
	ok := false
	switch a.kind {
	case String:
		var text string
		if text, ok = v.(string); len(text) > MaxText {
			return nil, whyLong
		}
	case Boolean:
		_, ok = v.(bool)
	case Integer:
		v, ok = integer(v)
	case Number:
		v, ok = number(v)
	}
	if !ok {
		return nil, whyType
	}
	return v, ""
}

// maxWhole is the largest float64 up to which all whole numbers are exact.
const maxWhole = 1 << 53

// integer returns an int in an interface. It allocates only for another type.
func integer(v any) (any, bool) {
	switch n := v.(type) {
	case int:
		return v, true
	case int64:
		return int(n), true
	case int32:
		return int(n), true
	case int16:
		return int(n), true
	case int8:
		return int(n), true
	case uint:
		return int(n), n <= math.MaxInt
	case uint64:
		return int(n), n <= math.MaxInt
	case uint32:
		return int(n), true
	case uint16:
		return int(n), true
	case uint8:
		return int(n), true
	case float64:
		return int(n), n == math.Trunc(n) && math.Abs(n) <= maxWhole
	default:
		return nil, false
	}
}

// number returns a float64 in an interface; NaN and infinities are no numbers.
func number(v any) (any, bool) {
	switch n := v.(type) {
	case float64:
		return v, !math.IsNaN(n) && !math.IsInf(n, 0)
	case float32:
		return number(float64(n))
	case uint:
		return float64(n), true
	case uint64:
		return float64(n), true
	}
	whole, ok := integer(v)
	if !ok {
		return nil, false
	}
	return float64(whole.(int)), true
}
