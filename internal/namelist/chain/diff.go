package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Change is one difference between two documents. Before is nil for what is added, After for what
// is removed. Both are JSON.
type Change struct {
	// Field is the path of the difference: attributes.age, rules.canary.percent, default, or rules
	// for their order.
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Diff returns what differs from one document to another, by field. Rules are compared by name. It
// ignores the version.
func Diff(before, after *Document) (changes []Change) {
	note := func(field string, a, b any) {
		was, is := raw(a), raw(b)
		if !bytes.Equal(was, is) {
			changes = append(changes, Change{Field: field, Before: was, After: is})
		}
	}
	note("name", before.Name, after.Name)
	each(before.Attributes, after.Attributes, func(name string, a, b any) { note("attributes."+name, a, b) })
	each(before.Variants, after.Variants, func(name string, a, b any) { note("variants."+name, a, b) })
	was, is := byName(before.Rules), byName(after.Rules)
	each(was, is, func(name string, a, b any) {
		if a == nil || b == nil {
			note("rules."+name, a, b)
			return
		}
		each(fieldsOf(a), fieldsOf(b), func(field string, a, b any) { note("rules."+name+"."+field, a, b) })
	})
	if !slices.Equal(common(before.Rules, is), common(after.Rules, was)) {
		note("rules", common(before.Rules, nil), common(after.Rules, nil))
	}
	note("default", before.Default, after.Default)
	return changes
}

// each calls call with each key of two maps, sorted; the value of a map that lacks it is nil.
func each[V any](before, after map[string]V, call func(name string, a, b any)) {
	all := maps.Clone(before)
	if all == nil {
		all = make(map[string]V)
	}
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var values [2]any
		for i, of := range []map[string]V{before, after} {
			if v, there := of[name]; there {
				values[i] = v
			}
		}
		call(name, values[0], values[1])
	}
}

// raw returns a value as JSON; nil if it is missing.
func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("chain: a document that was validated is no JSON: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}

func byName(rules []Rule) map[string]Rule {
	out := make(map[string]Rule, len(rules))
	for _, r := range rules {
		out[r.Name] = r
	}
	return out
}

// fieldsOf returns the fields of a rule by name.
func fieldsOf(rule any) (fields map[string]json.RawMessage) {
	if err := json.Unmarshal(raw(rule), &fields); err != nil {
		panic(fmt.Sprintf("chain: a rule is no object: %v", err))
	}
	return fields
}

// common returns the names of the rules that are also in other, in their order; of all rules if
// other is nil.
func common(rules []Rule, other map[string]Rule) (names []string) {
	for _, r := range rules {
		if _, there := other[r.Name]; there || other == nil {
			names = append(names, r.Name)
		}
	}
	return names
}

func (c Change) String() string {
	switch {
	case c.Before == nil:
		return fmt.Sprintf("+ %s: %s", c.Field, c.After)
	case c.After == nil:
		return fmt.Sprintf("- %s: %s", c.Field, c.Before)
	default:
		return fmt.Sprintf("~ %s: %s -> %s", c.Field, c.Before, c.After)
	}
}
