package wire

import "github.com/freeslot/freeslot"

const (
	ruleLabel fields = 1 << iota
	ruleOperator
	ruleValues
)

func (d *requestDecoder) labelRules() ([]freeslot.LabelRule, *problem) {
	if p := d.openArray(); p != nil {
		return nil, p
	}
	var rules []freeslot.LabelRule
	for i := 0; ; i++ {
		ok, p := d.element(i == 0)
		if p != nil || !ok {
			return rules, p
		}
		if i == freeslot.MaxLabelRules {
			return nil, tooMany(freeslot.MaxLabelRules)
		}
		var rule freeslot.LabelRule
		if p := d.labelRule(&rule); p != nil {
			return nil, p.at(i)
		}
		rules = append(rules, rule)
	}
}

func (d *requestDecoder) labelRule(r *freeslot.LabelRule) *problem {
	if p := d.openObject(); p != nil {
		return p
	}
	var seen fields
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil {
			return p
		}
		if !ok {
			return nil
		}
		if p := d.labelRuleField(r, &seen, key); p != nil {
			return p.in(fieldName(key))
		}
	}
}

func (d *requestDecoder) labelRuleField(r *freeslot.LabelRule, seen *fields, key []byte) (p *problem) {
	switch string(key) {
	case "label":
		if p = seen.add(ruleLabel); p == nil {
			r.Label, p = d.string()
		}
	case "operator":
		if p = seen.add(ruleOperator); p == nil {
			var operator string
			operator, p = d.string()
			r.Operator = freeslot.LabelOperator(operator)
		}
	case "values":
		if p = seen.add(ruleValues); p == nil {
			r.Values, p = d.strings(freeslot.MaxLabelRuleValues)
		}
	default:
		p = unknownField()
	}
	return p
}

func appendLabelRules(dst []byte, rules []freeslot.LabelRule) []byte {
	dst = append(dst, '[')
	for i := range rules {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"label":`...), rules[i].Label)
		dst = appendString(append(dst, `,"operator":`...), string(rules[i].Operator))
		if len(rules[i].Values) > 0 {
			dst = appendStrings(append(dst, `,"values":`...), rules[i].Values)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
