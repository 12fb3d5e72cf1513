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
	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/selection"
)

// versionKey is in the document in Redis beside the fields of selection.Config.
const versionKey = "version"

// Decode reads a configuration, with defaults applied, and validates it. A "version"
// in it is left out of account: the one that counts is the counter's. The error is a
// *freeslot.Error with code invalid_argument that names every bad field, each path
// beginning with "config".
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
		cfg.Enabled = len(cfg.Pools) > 0 // who lists pools wants them
	}
	if err := validate(&cfg).Err(); err != nil {
		return nil, err
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

func fieldErrors(problems config.Problems) (bad freeslot.FieldErrors) {
	for _, p := range problems {
		bad.Addf(root+"."+p.Path, "%s", p.Message)
	}
	return bad
}

// refuse is for one bad field. The error lists it, as it lists several.
func refuse(field, format string, args ...any) error {
	var bad freeslot.FieldErrors
	bad.Addf(field, format, args...)
	return bad.Err()
}

// pausedPath is the path of what is paused.
const pausedPath = root + ".paused"

// DecodePaused reads what is paused, nil where that is nothing. The error is as that of Decode.
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

// Encode is the canonical form of a valid configuration, but for what is paused, which has its
// own: equal ones have equal forms.
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
