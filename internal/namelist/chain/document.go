package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// Bounds of a document.
const (
	MaxBytes      = 64 << 10 // of a document's JSON
	MaxRules      = 64
	MaxAttributes = 64
	MaxVariants   = 64
	// MaxExpression is the longest expression, in bytes. MaxNodes bounds the nodes of its tree.
	MaxExpression = 4096
	MaxNodes      = 500
	// MaxText is the longest text of an attribute, in bytes; a longer one counts as unknown.
	MaxText = 4096
	// Buckets is the number of buckets of a percentage.
	Buckets = 10_000
)

// Key is the name of the attribute that holds the subject's key. It is a text, and need not be
// declared.
const Key = "key"

// Document is a version of a chain.
type Document struct {
	Name string `json:"name"`
	// Version is the number that the store gave out; 0 before that.
	Version int64 `json:"version,omitzero"`
	// Attributes are the attributes that rules may read, besides Key.
	Attributes map[string]Type `json:"attributes,omitempty"`
	// Variants are the variants that outcomes may name, with their values; null means none.
	Variants map[string]json.RawMessage `json:"variants,omitempty"`
	Rules    []Rule                     `json:"rules"`
	// Default is the outcome if no rule decides.
	Default Outcome `json:"default"`
}

// Type is the type of an attribute.
type Type string

// The types.
const (
	String  Type = "string"
	Integer Type = "integer" // 64 bits with sign
	Number  Type = "number"
	Boolean Type = "boolean"
)

// Rule is one condition with its outcome. Which of the last fields it has depends on its kind.
type Rule struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Negate turns the condition round; unknown stays unknown.
	Negate bool `json:"negate,omitzero"`
	// Unknown says what the rule does if its condition is unknown. A window has none.
	Unknown OnUnknown `json:"unknown,omitzero"`
	Outcome Outcome   `json:"outcome"`

	// List is the list that In asks; empty means the list with the chain's name.
	List string `json:"list,omitzero"`
	// Attribute is what In looks for, and what Percentage hashes: a text or an integer. Empty means
	// Key.
	Attribute string `json:"attribute,omitzero"`

	Expression string `json:"expression,omitzero"`

	// Percent is the share of Percentage, 0 to 100 in steps of 0.01. Rules with another Salt have
	// other buckets; empty means the chain's name.
	Percent *float64 `json:"percent,omitempty"`
	Salt    string   `json:"salt,omitzero"`

	// From and To are times of RFC 3339; a Window lasts from From to just before To. Empty means
	// that it has no such end. Weekdays are days in TimeZone, mon to sun; none means all. TimeZone
	// is a name of the IANA database; empty means UTC.
	From     string   `json:"from,omitzero"`
	To       string   `json:"to,omitzero"`
	Weekdays []string `json:"weekdays,omitempty"`
	TimeZone string   `json:"time_zone,omitzero"`
}

// Kind is the kind of a rule.
type Kind string

// The kinds.
const (
	In         Kind = "in"
	Expression Kind = "expression"
	Percentage Kind = "percentage"
	Window     Kind = "window"
)

// OnUnknown says what a rule does if its condition is unknown.
type OnUnknown string

// What a rule can do.
const (
	Skip  OnUnknown = "skip"  // the next rule goes on
	Match OnUnknown = "match" // the rule decides as if it had matched
	Stop  OnUnknown = "stop"  // the outcome is unknown
)

// Outcome is what a rule decides: allow, deny, next, or a variant.
type Outcome string

// The outcomes without a variant. A rule with Next decides nothing; it counts, and can stop.
const (
	Allow Outcome = "allow"
	Deny  Outcome = "deny"
	Next  Outcome = "next"
)

const variantPrefix = "variant: "

// VariantOf returns the outcome that gives a variant.
func VariantOf(name string) Outcome { return Outcome(variantPrefix + name) }

// Variant returns the variant of the outcome; empty if it has none.
func (o Outcome) Variant() string {
	name, _ := strings.CutPrefix(string(o), variantPrefix)
	if name == string(o) {
		return ""
	}
	return name
}

// ListOf returns the list that a rule asks; empty if it asks none.
func (d *Document) ListOf(r *Rule) string {
	switch {
	case r.Kind != In:
		return ""
	case r.List == "":
		return d.Name
	default:
		return r.List
	}
}

// Lists returns the lists that the chain asks, in the order of its rules.
func (d *Document) Lists() (names []string) {
	for i := range d.Rules {
		if name := d.ListOf(&d.Rules[i]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Encode returns the canonical form of a document that Parse has returned: equal documents have
// equal forms.
func Encode(d *Document) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		panic(fmt.Sprintf("chain: a document that was validated is no JSON: %v", err))
	}
	return bytes.TrimSpace(b.Bytes())
}

// Digest identifies the content of a document that Parse has returned, whatever its version: the
// SHA-256 of its canonical form without a version, in hex.
func (d *Document) Digest() string {
	bare := *d
	bare.Version = 0
	sum := sha256.Sum256(Encode(&bare))
	return hex.EncodeToString(sum[:])
}

// Parse reads a document and compiles it. exists reports whether there is such a list; nil accepts
// every name. The document is in canonical form. Errors: *freeslot.Error (invalid_argument) that
// names every bad field.
func Parse(data []byte, exists func(list string) bool) (*Document, *Chain, error) {
	if len(data) > MaxBytes {
		return nil, nil, freeslot.Invalid("document", "has %d bytes, expected at most %d", len(data), MaxBytes)
	}
	var found freeslot.FieldErrors
	d := decode(data, &found)
	if len(found) > 0 && found[0].Field == "document" {
		return nil, nil, found.Err()
	}
	c := d.compile(exists, &found)
	if err := found.Err(); err != nil {
		return nil, nil, err
	}
	return d, c, nil
}

// decode reads the fields one by one, so that one bad field does not hide another.
func decode(data []byte, found *freeslot.FieldErrors) *Document {
	d := new(Document)
	var rules []json.RawMessage
	fields := object("", "document", data, found, map[string]any{
		"name": &d.Name, "version": &d.Version, "default": &d.Default, "rules": &rules,
		"attributes": &d.Attributes, "variants": &d.Variants,
	})
	if !fields {
		return d
	}
	if len(rules) > MaxRules {
		found.Addf("rules", "has %d entries, expected at most %d", len(rules), MaxRules)
		rules = nil
	}
	d.Rules = make([]Rule, len(rules))
	for i := range rules {
		r, path := &d.Rules[i], fmt.Sprintf("rules[%d]", i)
		object(path+".", path, rules[i], found, map[string]any{
			"name": &r.Name, "kind": &r.Kind, "negate": &r.Negate, "unknown": &r.Unknown, "outcome": &r.Outcome,
			"list": &r.List, "attribute": &r.Attribute, "expression": &r.Expression, "percent": &r.Percent, "salt": &r.Salt,
			"from": &r.From, "to": &r.To, "weekdays": &r.Weekdays, "time_zone": &r.TimeZone,
		})
		r.Outcome = r.Outcome.canonical()
	}
	d.Default = d.Default.canonical()
	return d
}

// canonical allows any space after "variant:".
func (o Outcome) canonical() Outcome {
	if name, ok := strings.CutPrefix(string(o), strings.TrimSpace(variantPrefix)); ok {
		return VariantOf(strings.TrimSpace(name))
	}
	return o
}

// object reads the fields of an object into what they name. It reports whether data is one.
func object(prefix, path string, data []byte, found *freeslot.FieldErrors, into map[string]any) bool {
	var fields map[string]json.RawMessage
	if err := freeslot.DecodeStrict(path, data, &fields); err != nil {
		found.Add(err)
		return false
	}
	if fields == nil {
		found.Addf(path, "is null, expected an object")
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		target, known := into[name]
		if !known {
			found.Addf(prefix+name, "is not a known field")
			continue
		}
		err := freeslot.DecodeStrict(prefix+name, fields[name], target)
		if coded, ok := errors.AsType[*freeslot.Error](err); ok && coded.Field != prefix+name {
			coded.Field, coded.Message = prefix+name+"."+coded.Field, prefix+name+"."+coded.Message
		}
		found.Add(err)
	}
	return true
}
