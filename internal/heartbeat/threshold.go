package heartbeat

import "math"

// exceeded reports whether a metric that was sent as before has changed significantly.
func (t Threshold) exceeded(before, after any) bool {
	if same(before, after) {
		return false
	}
	from, isNumber := number(before)
	to, isStill := number(after)
	if !isNumber || !isStill {
		return true
	}
	change := math.Abs(to - from)
	switch {
	case t.Kind == Absolute:
		return change >= t.Value
	case t.Kind == Percent && from != 0 && !math.IsInf(change, 0):
		return change*100 >= t.Value*math.Abs(from)
	default: // a change from 0, or from or to infinity, reaches every percentage
		return true
	}
}

// same reports whether two values are equal. The type of a number does not matter, and NaN is equal
// to NaN.
func same(a, b any) bool {
	if i, ok := whole(a); ok {
		if j, ok := whole(b); ok {
			return i == j
		}
	}
	x, xNumber := number(a)
	y, yNumber := number(b)
	switch {
	case xNumber && yNumber:
		return x == y
	case xNumber != yNumber:
		return false
	case isNaN(a) || isNaN(b):
		return isNaN(a) && isNaN(b)
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	default:
		// Other values are not metrics, and comparing them could panic.
		return a == nil && b == nil
	}
}

func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	default:
		return 0, false
	}
}

// number returns the value of a number; NaN does not count as one.
func number(v any) (float64, bool) {
	if i, ok := whole(v); ok {
		return float64(i), true
	}
	f, ok := v.(float64)
	return f, ok && !math.IsNaN(f)
}

func isNaN(v any) bool {
	f, ok := v.(float64)
	return ok && math.IsNaN(f)
}
