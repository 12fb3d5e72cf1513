package wire

import (
	"strings"

	"github.com/freeslot/freeslot"
)

// ParseLabelRule reads a label rule in the words of URL queries and flags: "gpu in A100,H100", "gpu
// exists". A value cannot contain a comma. It does not validate the rule. The error is a
// *freeslot.Error with code invalid_argument that names field.
func ParseLabelRule(field, text string) (freeslot.LabelRule, error) {
	label, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	operator, values, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if operator == "" {
		return freeslot.LabelRule{}, freeslot.Invalid(
			field, "is %q, expected a label, an operator and its values, such as 'gpu in A100,H100'", text,
		)
	}
	rule := freeslot.LabelRule{Label: label, Operator: freeslot.LabelOperator(operator)}
	if values = strings.TrimSpace(values); values != "" {
		rule.Values = strings.Split(values, ",")
	}
	return rule, nil
}
