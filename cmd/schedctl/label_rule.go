package main

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// labelRule is a freeslot.LabelRule written in words: "gpu in A100,H100". The job's validation
// checks the values of the operator.
type labelRule freeslot.LabelRule

// UnmarshalText reads a rule. A value cannot contain a comma.
func (r *labelRule) UnmarshalText(text []byte) error {
	rule, err := wire.ParseLabelRule("the rule", string(text))
	*r = labelRule(rule)
	return err
}

func labelRules(list []labelRule) []freeslot.LabelRule {
	rules := make([]freeslot.LabelRule, len(list))
	for i, r := range list {
		rules[i] = freeslot.LabelRule(r)
	}
	return rules
}
