package chain

import (
	"context"
	"encoding/json"
	"time"
)

// Chain is a compiled document. It is immutable, and safe for concurrent use.
type Chain struct {
	name    string
	version int64
	lists   []string
	// attributes are the declared ones, sorted.
	attributes []string
	rules      []rule
	def        outcome
	windows    bool // true if a rule needs the time
}

// outcome is what a rule decides.
type outcome struct {
	result  Result // Undecided: go on
	variant string
	value   json.RawMessage
}

// rule is a compiled rule.
type rule struct {
	name    string
	kind    Kind
	negate  bool
	unknown OnUnknown
	outcome outcome

	list       int
	attribute  attribute
	salt       string
	below      int // the buckets below it match
	window     window
	expression *expression
}

// Name returns the name of the chain.
func (c *Chain) Name() string { return c.name }

// Version returns the version of the document.
func (c *Chain) Version() int64 { return c.version }

// Lists returns the lists that the chain asks. The caller must not change it.
func (c *Chain) Lists() []string { return c.lists }

// Attributes returns the names of the attributes that the document declares, sorted. The caller
// must not change it.
func (c *Chain) Attributes() []string { return c.attributes }

// RuleNames returns the names of the rules, in their order.
func (c *Chain) RuleNames() []string {
	names := make([]string, len(c.rules))
	for i := range c.rules {
		names[i] = c.rules[i].name
	}
	return names
}

// Evaluate decides for a subject. ctx is for the lists.
func (c *Chain) Evaluate(ctx context.Context, env Env, s Subject) (d Decision) {
	d.Version = c.version
	if c.windows && env.Now.IsZero() {
		env.Now = time.Now()
	}
	for i := range c.rules {
		r := &c.rules[i]
		var doubt Doubt
		is := c.holds(ctx, &env, &s, r, &d, &doubt)
		if r.negate {
			is = is.not()
		}
		if env.Counter != nil {
			env.Counter.Rule(i, is)
		}
		reason := ReasonRule
		if is == Unknown {
			if d.Doubt.Rule == "" || r.unknown != Skip {
				d.Doubt = doubt
			}
			if r.unknown == Skip {
				continue
			}
			if r.unknown == Stop {
				d.decide(&outcome{}, r, i, ReasonStopped)
				return d
			}
			is, reason = True, ReasonUnknownMatch
		}
		if is == True && r.outcome.result != Undecided {
			d.decide(&r.outcome, r, i, reason)
			return d
		}
	}
	d.decide(&c.def, &rule{}, len(c.rules), ReasonDefault)
	return d
}

func (d *Decision) decide(o *outcome, by *rule, index int, reason Reason) {
	d.Result, d.Variant, d.Value = o.result, o.variant, o.value
	d.Rule, d.Kind, d.Index, d.Reason = by.name, by.kind, index, reason
}

// holds returns the truth of a rule's condition, before it is negated. If that is Unknown, it fills
// in doubt.
func (c *Chain) holds(ctx context.Context, env *Env, s *Subject, r *rule, d *Decision, doubt *Doubt) Truth {
	switch r.kind {
	case Window:
		return truth(r.window.has(env.Now))
	case Expression:
		is, attribute, why := r.expression.holds(s)
		if is == Unknown {
			*doubt = Doubt{Rule: r.name, Attribute: attribute, Why: why}
		}
		return is
	}
	text, why := r.attribute.text(s)
	switch {
	case why != "":
		*doubt = Doubt{Rule: r.name, Attribute: r.attribute.name, Why: why}
		return Unknown
	case r.kind == Percentage:
		return truth(Bucket(r.salt, text) < r.below)
	}
	m := env.Lists.Ask(ctx, r.list, text)
	d.Stale = d.Stale || m.Stale
	d.Asked.add(ListVersion{List: c.lists[r.list], Version: m.Version, Revision: m.Revision})
	if m.Truth == Unknown {
		*doubt = Doubt{Rule: r.name, List: c.lists[r.list], Why: m.Why}
	}
	return m.Truth
}
