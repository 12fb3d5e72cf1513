package main

import (
	"fmt"
	"strings"

	"github.com/freeslot/freeslot"
)

// labelRule is a freeslot.LabelRule written in words: "gpu in A100,H100". The job's validation
// checks the values of the operator.
type labelRule freeslot.LabelRule

// UnmarshalText reads a rule. A value cannot contain a comma.
func (r *labelRule) UnmarshalText(text []byte) error {
	label, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	operator, values, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if operator == "" {
		return fmt.Errorf("%q is no rule, expected a label, an operator and its values, such as 'gpu in A100,H100'", text)
	}
	*r = labelRule{Label: label, Operator: freeslot.LabelOperator(operator)}
	if values = strings.TrimSpace(values); values != "" {
		r.Values = strings.Split(values, ",")
	}
	return nil
}

func labelRules(list []labelRule) []freeslot.LabelRule {
	rules := make([]freeslot.LabelRule, len(list))
	for i, r := range list {
		rules[i] = freeslot.LabelRule(r)
	}
	return rules
}
