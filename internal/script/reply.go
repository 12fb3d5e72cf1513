package script

import (
	"errors"

	"github.com/redis/rueidis"
)

// Reply reads the values of a script's answer in order, and keeps the first error. After an error
// every read returns the zero value, so a caller checks Err once, at the end.
type Reply struct {
	// Values holds the values that were not read yet.
	Values []rueidis.RedisMessage
	Err    error
}

// ReadReply starts to read an answer, or an array in one.
func ReadReply(answer interface {
	ToArray() ([]rueidis.RedisMessage, error)
},
) Reply {
	values, err := answer.ToArray()
	return Reply{Values: values, Err: err}
}

// Next returns the next value. ok is false after an error, and at the end, which counts as an
// error.
func (r *Reply) Next() (v rueidis.RedisMessage, ok bool) {
	if r.Err == nil && len(r.Values) == 0 {
		r.Err = errors.New("the answer is too short")
	}
	if r.Err != nil {
		return v, false
	}
	v, r.Values = r.Values[0], r.Values[1:]
	return v, true
}

// Number returns the next value, which must be a whole number.
func (r *Reply) Number() (n int64) {
	if v, ok := r.Next(); ok {
		n, r.Err = v.AsInt64()
	}
	return n
}

// Text returns the next value, which must be a text.
func (r *Reply) Text() (s string) {
	if v, ok := r.Next(); ok {
		s, r.Err = v.ToString()
	}
	return s
}

// Texts returns the values that are left, which must be texts; nil if there are none.
func (r *Reply) Texts() (texts []string) {
	for len(r.Values) > 0 && r.Err == nil {
		texts = append(texts, r.Text())
	}
	return texts
}
