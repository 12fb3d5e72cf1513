package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// words are what expressions cannot have as the name of an attribute.
var words = []string{
	"and", "or", "not", "in", "matches", "contains", "startsWith", "endsWith", "true", "false", "nil", "let", "if", "else",
}

// maxLabel is the length limit of names and salts, in bytes.
const maxLabel = 64

// Compile compiles a document that a store has, with the version that the store gave it. Errors: a
// document of a later release, which this one does not know.
func Compile(document []byte, version int64) (*Chain, error) {
	_, c, err := Parse(document, nil)
	if err == nil {
		c.version = version
	}
	return c, err
}

// compile checks a document, brings it into canonical form, and compiles it.
func (d *Document) compile(exists func(list string) bool, found *freeslot.FieldErrors) *Chain {
	found.Add(ValidateName("name", d.Name))
	if d.Version < 0 {
		found.Addf("version", "is %d, expected 0 or more", d.Version)
	}
	attributes := d.compileAttributes(found)
	d.compileVariants(found)
	c := &Chain{
		name: d.Name, version: d.Version, lists: d.Lists(), attributes: slices.Sorted(maps.Keys(d.Attributes)),
		rules: make([]rule, len(d.Rules)),
	}
	names := make(map[string]int, len(d.Rules))
	for i := range d.Rules {
		r, path := &d.Rules[i], element("rules", i)
		if err := freeslot.ValidateName(path+".name", r.Name); err != nil {
			found.Add(err)
		} else if first, twice := names[r.Name]; twice {
			found.Addf(path+".name", "is %s, which rules[%d] has, expected another name", r.Name, first)
		} else {
			names[r.Name] = i
		}
		if list := d.ListOf(r); list != "" && exists != nil && ValidateName("", list) == nil && !exists(list) {
			found.Addf(path+".list", "is %.64q, expected the name of a list that exists", list)
		}
		c.rules[i] = d.compileRule(r, path, c.lists, attributes, found)
		c.windows = c.windows || r.Kind == Window
	}
	if d.Default == Next {
		found.Addf("default", "is next, expected allow, deny or variant: NAME")
	} else {
		c.def = d.compileOutcome("default", d.Default, found)
	}
	return c
}

// ValidateName checks the name of a chain, which is like the name of a list. The error names field.
func ValidateName(field, name string) error {
	if freeslot.ValidateName(field, name) != nil || strings.Contains(name, "_") {
		return freeslot.Invalid(
			field, "is %.64q, expected 1 to 64 characters of A-Z a-z 0-9 . -, beginning with a letter or digit", name,
		)
	}
	return nil
}

func (d *Document) compileAttributes(found *freeslot.FieldErrors) map[string]Type {
	if len(d.Attributes) > MaxAttributes {
		found.Addf("attributes", "has %d entries, expected at most %d", len(d.Attributes), MaxAttributes)
	}
	known := map[string]Type{Key: String}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		field, kind := "attributes."+name, d.Attributes[name]
		switch {
		case name == Key:
			found.Addf(field, "is declared, expected another name: every subject has a key")
		case !identifier(name) || slices.Contains(words, name) || slices.Contains(functions, name):
			found.Addf(
				field, "has a name that expressions cannot have, expected a-z A-Z 0-9 _, at most %d, no word of theirs", maxLabel,
			)
		case !slices.Contains([]Type{String, Integer, Number, Boolean}, kind):
			found.Addf(field, "is %.64q, expected string, integer, number or boolean", string(kind))
		default:
			known[name] = kind
		}
	}
	return known
}

func identifier(name string) bool {
	for i, c := range name {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxLabel
}

func (d *Document) compileVariants(found *freeslot.FieldErrors) {
	if len(d.Variants) > MaxVariants {
		found.Addf("variants", "has %d entries, expected at most %d", len(d.Variants), MaxVariants)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Variants)) {
		found.Add(freeslot.ValidateName("variants."+name, name))
		var small bytes.Buffer
		if json.Compact(&small, d.Variants[name]) == nil { // Parse has read it, so it is JSON
			d.Variants[name] = small.Bytes()
		}
	}
}

func (d *Document) compileOutcome(field string, o Outcome, found *freeslot.FieldErrors) (out outcome) {
	switch variant := o.Variant(); {
	case o == Allow:
		out.result = Allowed
	case o == Deny:
		out.result = Denied
	case o == Next:
	case variant == "":
		found.Addf(field, "is %.64q, expected allow, deny, next or variant: NAME", string(o))
	default:
		value, known := d.Variants[variant]
		if !known {
			found.Addf(field, "names the variant %.64q, which is not one of variants", variant)
		}
		out = outcome{result: Varied, variant: variant}
		if string(value) != "null" {
			out.value = value
		}
	}
	return out
}

// compileRule compiles a rule, and refuses fields that its kind does not have.
func (d *Document) compileRule(
	r *Rule, path string, lists []string, attributes map[string]Type, found *freeslot.FieldErrors,
) rule {
	out := rule{
		name: r.Name, kind: r.Kind, negate: r.Negate, unknown: r.Unknown,
		outcome: d.compileOutcome(path+".outcome", r.Outcome, found),
	}
	if !slices.Contains([]Kind{In, Expression, Percentage, Window}, r.Kind) {
		found.Addf(path+".kind", "is %.64q, expected in, expression, percentage or window", string(r.Kind))
		return out
	}
	of := func(field string, set bool, kinds ...Kind) {
		if set && !slices.Contains(kinds, r.Kind) {
			found.Addf(path+"."+field, "is set for a rule of kind %s, expected it only for %s", r.Kind, kinds[0])
		}
	}
	of("list", r.List != "", In)
	of("attribute", r.Attribute != "", In, Percentage)
	of("expression", r.Expression != "", Expression)
	of("percent", r.Percent != nil, Percentage)
	of("salt", r.Salt != "", Percentage)
	of("from", r.From != "", Window)
	of("to", r.To != "", Window)
	of("weekdays", len(r.Weekdays) > 0, Window)
	of("time_zone", r.TimeZone != "", Window)
	if r.Kind == Window {
		of("unknown", r.Unknown != "", In, Expression, Percentage)
		out.window = compileWindow(r, path, found)
		return out
	}
	if !slices.Contains([]OnUnknown{Skip, Match, Stop}, r.Unknown) {
		found.Addf(path+".unknown", "is %.64q, expected skip, match or stop", string(r.Unknown))
	}
	if r.Kind == Expression {
		var err error
		if out.expression, err = compileExpression(r.Expression, attributes); err != nil {
			found.Addf(path+".expression", "%v", err)
		}
		return out
	}
	out.attribute = compileAttribute(r.Attribute, path+".attribute", attributes, found)
	if r.Kind == In {
		if r.List != "" {
			found.Add(ValidateName(path+".list", r.List))
		}
		out.list = slices.Index(lists, d.ListOf(r))
		return out
	}
	d.compilePercentage(r, &out, path, found)
	return out
}

// compileAttribute returns the attribute that a list or a hash takes.
func compileAttribute(name, field string, attributes map[string]Type, found *freeslot.FieldErrors) attribute {
	if name == "" {
		name = Key
	}
	kind, known := attributes[name]
	switch {
	case !known:
		found.Addf(field, "is %.64q, which is not one of attributes", name)
	case kind != String && kind != Integer:
		found.Addf(field, "is a %s, expected an attribute of type string or integer", kind)
	}
	return attribute{name: name, kind: kind}
}

func (d *Document) compilePercentage(r *Rule, out *rule, path string, found *freeslot.FieldErrors) {
	if out.salt = r.Salt; out.salt == "" {
		out.salt = d.Name
	}
	if len(r.Salt) > maxLabel || strings.ContainsRune(r.Salt, 0) {
		found.Addf(path+".salt", "is no text of at most %d bytes without a zero byte", maxLabel)
	}
	below, err := buckets(r.Percent)
	if err != nil {
		found.Addf(path+".percent", "%v", err)
	}
	out.below = below
}

// buckets returns how many buckets a percentage has.
func buckets(percent *float64) (int, error) {
	if percent == nil {
		return 0, errors.New("is missing, expected 0 to 100")
	}
	below := math.Round(*percent * (Buckets / 100))
	if below < 0 || below > Buckets || math.Abs(*percent*(Buckets/100)-below) > 1e-6 {
		return 0, fmt.Errorf("is %s, expected 0 to 100 in steps of 0.01", strconv.FormatFloat(*percent, 'f', -1, 64))
	}
	*percent = below / (Buckets / 100)
	return int(below), nil
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
