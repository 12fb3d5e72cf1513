package freeslot

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxLabelRules and MaxLabelRuleValues bound what one requirement asks of labels.
const (
	MaxLabelRules      = 32
	MaxLabelRuleValues = 64
)

// LabelRule compares one label of a node. It is modelled on a term of Kubernetes' node selectors.
type LabelRule struct {
	// Label is the label's name.
	Label string `json:"label"`
	// Operator is one of the Label operators.
	Operator LabelOperator `json:"operator"`
	// Values are 1 to MaxLabelRuleValues for in and not_in, none for exists and not_exists, exactly
	// one decimal number for gt, ge, lt and le.
	Values []string `json:"values,omitempty"`
}

// LabelOperator is how a LabelRule compares.
type LabelOperator string

// The operators. A label that the node does not have satisfies only LabelNotIn and LabelNotExists.
const (
	// LabelIn: the label's value is one of the values.
	LabelIn LabelOperator = "in"
	// LabelNotIn: the label's value is none of the values, or the label is missing.
	LabelNotIn LabelOperator = "not_in"
	// LabelExists: the label is there, whatever its value.
	LabelExists LabelOperator = "exists"
	// LabelNotExists: the label is missing.
	LabelNotExists LabelOperator = "not_exists"
	// LabelGreater, LabelGreaterEqual, LabelLess and LabelLessEqual compare the label's value with
	// the one value as decimal numbers (64-bit floating point: whole numbers are exact up to 2^53).
	// A label that is not a number fails.
	LabelGreater      LabelOperator = "gt"
	LabelGreaterEqual LabelOperator = "ge"
	LabelLess         LabelOperator = "lt"
	LabelLessEqual    LabelOperator = "le"
)

// LabelOperators lists every operator.
func LabelOperators() []LabelOperator {
	return []LabelOperator{
		LabelIn, LabelNotIn, LabelExists, LabelNotExists,
		LabelGreater, LabelGreaterEqual, LabelLess, LabelLessEqual,
	}
}

// Holds reports whether the rule, which must be valid, holds for a node's labels.
func (r *LabelRule) Holds(labels map[string]string) bool {
	value, ok := labels[r.Label]
	switch r.Operator {
	case LabelIn:
		return ok && slices.Contains(r.Values, value)
	case LabelNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case LabelExists:
		return ok
	case LabelNotExists:
		return !ok
	default:
		return ok && r.compares(value)
	}
}

func (r *LabelRule) compares(value string) bool {
	got, ok := parseNumber(value)
	if !ok || len(r.Values) != 1 {
		return false
	}
	want, ok := parseNumber(r.Values[0])
	switch r.Operator {
	case LabelGreater:
		return ok && got > want
	case LabelGreaterEqual:
		return ok && got >= want
	case LabelLess:
		return ok && got < want
	case LabelLessEqual:
		return ok && got <= want
	default:
		return false
	}
}

// parseNumber reads a finite decimal number. It refuses the other forms that ParseFloat reads:
// hexadecimal digits, underscores, infinities.
func parseNumber(s string) (float64, bool) {
	if strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, false
	}
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && !math.IsInf(x, 0)
}

// Validate checks the rule. The error is an [*Error] with code [CodeInvalidArgument] that names a
// field below path.
func (r *LabelRule) Validate(path string) error {
	if err := ValidateName(path+".label", r.Label); err != nil {
		return err
	}
	least, most, counts := 1, 1, "exactly 1"
	switch r.Operator {
	case LabelIn, LabelNotIn:
		most, counts = MaxLabelRuleValues, "1 to "+strconv.Itoa(MaxLabelRuleValues)
	case LabelExists, LabelNotExists:
		least, most, counts = 0, 0, "none"
	case LabelGreater, LabelGreaterEqual, LabelLess, LabelLessEqual:
	default:
		return Invalid(path+".operator", "is %q, expected in, not_in, exists, not_exists, gt, ge, lt or le", r.Operator)
	}
	if count := len(r.Values); count < least || count > most {
		return Invalid(path+".values", "has %d entries, expected %s for %s", count, counts, r.Operator)
	}
	for i, value := range r.Values {
		if err := r.validateValue(element(path+".values", i), value); err != nil {
			return err
		}
	}
	return nil
}

func (r *LabelRule) validateValue(field, value string) error {
	if !validLabelValue(value) {
		return Invalid(
			field, "is not a label value, expected at most %d bytes without control characters", MaxLabelValueLength,
		)
	}
	if r.Operator == LabelIn || r.Operator == LabelNotIn {
		return nil
	}
	if _, ok := parseNumber(value); !ok {
		return Invalid(field, "is %q, expected a decimal number for %s", value, r.Operator)
	}
	return nil
}

func validateLabelRules(field string, rules []LabelRule) error {
	return validateEach(
		field, len(rules), MaxLabelRules, func(i int) error { return rules[i].Validate(element(field, i)) },
	)
}
