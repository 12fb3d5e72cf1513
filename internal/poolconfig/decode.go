package poolconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/selection"
)

// maxFieldErrors bounds how many bad fields are named at once.
const maxFieldErrors = 100

// versionKey is in the document in Redis beside the fields of selection.Config.
const versionKey = "version"

// Decode reads a configuration, with defaults applied, and validates it. A "version"
// in it is left out of account: the one that counts is the counter's. The error is a
// *freeslot.Error with code invalid_argument that names every bad field, each path
// beginning with "config".
func Decode(data []byte) (*selection.Config, error) {
	document, err := parse(data)
	if err != nil {
		return nil, refusal([]freeslot.FieldError{{Field: root, Message: root + " " + err.Error()}})
	}
	delete(document, versionKey)
	var cfg selection.Config
	if problems := config.Decode(document, &cfg); len(problems) > 0 {
		return nil, refusal(append(fieldErrors(problems), validate(&cfg)...))
	}
	if _, said := document["enabled"]; !said {
		cfg.Enabled = len(cfg.Pools) > 0 // who lists pools wants them
	}
	if bad := validate(&cfg); len(bad) > 0 {
		return nil, refusal(bad)
	}
	return normal(&cfg), nil
}

// root begins the path of every field.
const root = "config"

// parse reads one JSON object; whole numbers become int64.
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

// numbers replaces json.Number, in place where it can.
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

func fieldErrors(problems config.Problems) []freeslot.FieldError {
	out := make([]freeslot.FieldError, len(problems))
	for i, p := range problems {
		path := root + "." + p.Path
		out[i] = freeslot.FieldError{Field: path, Message: path + " " + p.Message}
	}
	return out
}

// refusal makes one error of all. The first of several that are about one field
// stands for them.
func refusal(bad []freeslot.FieldError) *freeslot.Error {
	seen := make(map[string]bool, len(bad))
	var all []freeslot.FieldError
	for _, b := range bad {
		if !seen[b.Field] {
			all = append(all, b)
		}
		seen[b.Field] = true
	}
	e := &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: all[0].Field, Message: all[0].Message, Errors: all}
	if len(all) > 1 {
		e.Message += fmt.Sprintf(" (and %d more)", len(all)-1)
		e.Errors = all[:min(len(all), maxFieldErrors)]
	}
	return e
}

// pausedPath is the path of what is paused.
const pausedPath = root + ".paused"

// DecodePaused reads what is paused, nil where that is nothing. The error is as that of Decode.
func DecodePaused(data []byte) (*selection.Paused, error) {
	if len(data) == 0 {
		return nil, refusal([]freeslot.FieldError{{Field: pausedPath, Message: pausedPath + " is empty or too long, expected a JSON object"}})
	}
	cfg, err := Decode(slices.Concat([]byte(`{"paused":`), data, []byte(`}`)))
	if err != nil || cfg.Paused.Empty() {
		return nil, err
	}
	return cfg.Paused, nil
}

// Encode is the canonical form of a valid configuration, but for what is paused, which has its
// own: equal ones have equal forms.
func Encode(cfg *selection.Config) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	out := normal(cfg)
	out.Paused = nil
	if err := enc.Encode(out); err != nil {
		panic(fmt.Sprintf("poolconfig: a configuration that was validated is no JSON: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}
