package pagetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Variables holds the values of placeholders in patterns. "…" matches any value. "…name" matches
// any value at first, and then the same one. A placeholder is a whole JSON string, whatever the
// type of its value.
type Variables map[string]any

// more is the field that lets an object have fields that its pattern does not name.
const more = "…"

// Match compares a JSON value with a pattern: nothing may be missing, and nothing more may be
// there. An object whose pattern has the field "…" may have more fields.
func (v Variables) Match(pattern, got []byte) error {
	var want, have any
	if err := json.Unmarshal(pattern, &want); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if err := json.Unmarshal(got, &have); err != nil {
		return fmt.Errorf("received: %w", err)
	}
	return v.matchValue("", want, have)
}

func (v Variables) matchValue(path string, want, have any) error {
	switch want := want.(type) {
	case string:
		name, isPlaceholder := strings.CutPrefix(want, "…")
		if !isPlaceholder {
			break
		}
		known, ok := v[name]
		if name == "" || !ok {
			v[name] = have
			return nil
		}
		if !reflect.DeepEqual(known, have) {
			return fmt.Errorf("%s is %v, and was %v before", path, have, known)
		}
		return nil
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not an object", path)
		}
		_, open := want[more]
		for key := range have {
			if _, ok := want[key]; !ok && !open {
				return fmt.Errorf("%s.%s is not expected", path, key)
			}
		}
		for key, value := range want {
			if key == more {
				continue
			}
			part, ok := have[key]
			if !ok {
				return fmt.Errorf("%s.%s is missing", path, key)
			}
			if err := v.matchValue(path+"."+key, value, part); err != nil {
				return err
			}
		}
		return nil
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return fmt.Errorf("%s is not an array of %d", path, len(want))
		}
		for i := range want {
			if err := v.matchValue(fmt.Sprintf("%s[%d]", path, i), want[i], have[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(want, have) {
		return fmt.Errorf("%s is %v, want %v", path, have, want)
	}
	return nil
}

// Substitute puts the values of named placeholders into a frame.
func (v Variables) Substitute(frame string) string {
	for name, value := range v {
		placeholder := `"…` + name + `"`
		if name == "" || !strings.Contains(frame, placeholder) {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		frame = strings.ReplaceAll(frame, placeholder, string(text))
	}
	return frame
}
