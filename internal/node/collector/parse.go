package collector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MaxParsedFields is the largest number of fields in an object that [Parse] takes.
const MaxParsedFields = 64

// Parse reads figures that a program wrote: one JSON object of numbers, texts and booleans, with
// nothing after it. A field that is null is left out. Numbers without a fraction become int64 if
// they fit. Names must be valid in [Metrics].
func Parse(data []byte) (Metrics, error) {
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("expected a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one JSON object and nothing after it")
	}
	if fields == nil {
		return nil, errors.New("expected a JSON object, got null")
	}
	if len(fields) > MaxParsedFields {
		return nil, fmt.Errorf("the object has %d fields, expected at most %d", len(fields), MaxParsedFields)
	}
	figures := make(Metrics, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !validField(name) {
			return nil, fmt.Errorf(
				"the object has the field %q, expected a lower-case letter, then up to %d lower-case letters, digits and "+
					"underscores",
				cut(name, maxFieldBytes), maxFieldBytes-1,
			)
		}
		v, err := parsed(fields[name])
		if err != nil {
			return nil, fmt.Errorf("field %s %w", name, err)
		}
		if v != nil {
			figures[name] = v
		}
	}
	return figures, nil
}

// parsed converts a value of a decoder with UseNumber. nil is null.
func parsed(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, errors.New("is a number that is too large")
		}
		return f, nil
	case string, bool, nil:
		return v, nil
	default:
		return nil, errors.New("is a list or an object, expected a number, a text or a boolean")
	}
}
