package pool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/selection"
)

// versionKey is a field of the document in Redis that selection.Config does not have.
const versionKey = "version"

// Decode reads a configuration, applies the defaults, and validates it. It ignores a "version" in
// it: the counter's version counts. The error is a *freeslot.Error with code invalid_argument that
// names every bad field; each path begins with "config".
func Decode(data []byte) (*selection.Config, error) {
	document, err := parse(data)
	if err != nil {
		return nil, refuse(root, "%v", err)
	}
	delete(document, versionKey)
	var cfg selection.Config
	if problems := config.Decode(document, &cfg); len(problems) > 0 {
		return nil, append(fieldErrors(problems), validate(&cfg)...).Err()
	}
	if _, said := document["enabled"]; !said {
		cfg.Enabled = len(cfg.Pools) > 0 // a configuration that lists pools wants them enabled
	}
	if err := validate(&cfg).Err(); err != nil {
		return nil, err
	}
	return normal(&cfg), nil
}

// root is the first part of every field's path.
const root = "config"

// parse reads one JSON object and turns whole numbers into int64.
func parse(data []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("is empty, expected a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var document any
	if err := dec.Decode(&document); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is followed by further data, expected one JSON object")
	}
	object, ok := numbers(document).(map[string]any)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	return object, nil
}

// numbers replaces each json.Number, in place where possible.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String() // out of range; the decoder asks for a number
		}
		return f
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

func fieldErrors(problems config.Problems) (bad freeslot.FieldErrors) {
	for _, p := range problems {
		bad.Addf(root+"."+p.Path, "%s", p.Message)
	}
	return bad
}

// refuse returns an error for one bad field, in the form of an error for several.
func refuse(field, format string, args ...any) error {
	var bad freeslot.FieldErrors
	bad.Addf(field, format, args...)
	return bad.Err()
}

// pausedPath is the path of the paused pools, services and classes.
const pausedPath = root + ".paused"

// DecodePaused reads what is paused; nil if nothing is. Errors: as Decode.
func DecodePaused(data []byte) (*selection.Paused, error) {
	if len(data) == 0 {
		return nil, refuse(pausedPath, "is empty or too long, expected a JSON object")
	}
	cfg, err := Decode(slices.Concat([]byte(`{"paused":`), data, []byte(`}`)))
	if err != nil || cfg.Paused.Empty() {
		return nil, err
	}
	return cfg.Paused, nil
}

// Encode returns the canonical form of a valid configuration: equal configurations have equal
// forms. It leaves out what is paused, which has a form of its own.
func Encode(cfg *selection.Config) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	out := normal(cfg)
	out.Paused = nil
	if err := enc.Encode(out); err != nil {
		panic(fmt.Sprintf("pool: a configuration that was validated is no JSON: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}
