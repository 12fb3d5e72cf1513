package count

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/freeslot/freeslot"
)

// The counters for the decisions of one rule of a chain. Stored history has them in this order.
const (
	Allow = iota
	Deny
	Variant
	Undecided // the outcome is unknown
	// What a shadow has decided beside these decisions. Memory could not decide ShadowUndecided.
	ShadowSame
	ShadowDifferent
	ShadowUndecided
	RuleCells
)

// OutcomeNames has the names of the outcomes, by their counters.
var OutcomeNames = [...]string{"allow", "deny", "variant", "unknown"}

// ShadowNames has the names of the results of a shadow, from ShadowSame on.
var ShadowNames = [...]string{"same", "different", "undecided"}

// RuleCounts holds one number for each of these counters.
type RuleCounts [RuleCells]uint64

// Decisions returns how many decisions were made.
func (c RuleCounts) Decisions() uint64 { return c[Allow] + c[Deny] + c[Variant] + c[Undecided] }

// Add adds other to c.
func (c *RuleCounts) Add(other *RuleCounts) {
	for i, n := range other {
		c[i] += n
	}
}

const (
	// maxRules bounds the rules of a Rules: more than a document has. Further ones count under
	// Other.
	maxRules = 80
	// Other counts for rules beyond the bound.
	Other = "other"
)

// Rules counts by rules, which change over time. The zero value is ready to use. It is safe for
// concurrent use.
type Rules struct {
	mu    sync.Mutex
	names []string              // guarded by mu; those that have counted, in their order
	past  map[string]RuleCounts // guarded by mu; of sets that no one uses any more
	sets  []ruleSet             // guarded by mu; the newest is the last
}

type ruleSet struct {
	names []string
	set   *Set
}

// keptSets is how many sets still count: the newest, and the one before, which callers may be using
// while they change to the newest.
const keptSets = 2

// Set returns counters of these rules, in their order, RuleCells for each. They begin at 0; Totals
// adds up all sets. Sets before the last two must be out of use: their later additions are lost.
func (r *Rules) Set(names []string) *Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sets) == keptSets {
		if r.past == nil {
			r.past = make(map[string]RuleCounts)
		}
		r.addTo(r.past, &r.sets[0])
		r.sets = r.sets[1:]
	}
	s := NewSet(len(names) * RuleCells)
	r.sets = append(r.sets, ruleSet{names, s})
	return s
}

// Totals returns what was counted for each rule. Rules that never counted are absent.
func (r *Rules) Totals() map[string]RuleCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]RuleCounts, len(r.past))
	for name, c := range r.past {
		all[name] = c
	}
	for i := range r.sets {
		r.addTo(all, &r.sets[i])
	}
	return all
}

// addTo adds the counters of a set. A rule that is beyond the bound once stays so: otherwise its
// total would jump.
func (r *Rules) addTo(all map[string]RuleCounts, s *ruleSet) {
	for i, name := range s.names {
		var c RuleCounts
		for cell := range c {
			c[cell] = s.set.Get(i*RuleCells + cell)
		}
		if c == (RuleCounts{}) {
			continue
		}
		if !slices.Contains(r.names, name) {
			if len(r.names) >= maxRules {
				name = Other
			} else {
				r.names = append(r.names, name)
			}
		}
		sum := all[name]
		sum.Add(&c)
		all[name] = sum
	}
}

// RuleReport is what a client has counted of a chain since it began to follow it.
type RuleReport struct {
	// Incarnation and AgeMS are as in Report.
	Incarnation string
	AgeMS       int64
	Rules       map[string]RuleCounts
}

// MaxRuleText bounds the text of a report on a chain, in bytes: maxRules names of 64 bytes, with
// all their counters.
const MaxRuleText = 16 << 10

// String returns the text that ParseRuleReport reads: the incarnation, then name=n,n,n for each
// rule, with counters in their order, and without zeros at the end.
func (r *RuleReport) String() string {
	out := append(make([]byte, 0, 256), r.Incarnation...)
	if r.AgeMS > 0 {
		out = strconv.AppendInt(append(out, " "+ruleAge+"="...), r.AgeMS, 10)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Rules)) {
		c := r.Rules[name]
		last := RuleCells - 1
		for last > 0 && c[last] == 0 {
			last--
		}
		out = append(append(append(out, ' '), name...), '=')
		for i, n := range c[:last+1] {
			if i > 0 {
				out = append(out, ',')
			}
			out = strconv.AppendUint(out, n, 10)
		}
	}
	return string(out)
}

// ParseRuleReport reads the text of a report on a chain. It leaves out counters that this release
// does not know.
func ParseRuleReport(text string) (r RuleReport, err error) {
	if len(text) > MaxRuleText {
		return RuleReport{}, fmt.Errorf("has %d bytes, expected at most %d", len(text), MaxRuleText)
	}
	var rest string
	r.Incarnation, rest, _ = strings.Cut(text, " ")
	if freeslot.ValidateName("incarnation", r.Incarnation) != nil {
		return RuleReport{}, fmt.Errorf("begins with %.64q, expected a name made anew at each start", r.Incarnation)
	}
	r.Rules = make(map[string]RuleCounts)
	for rest != "" {
		var pair string
		pair, rest, _ = strings.Cut(rest, " ")
		name, numbers, _ := strings.Cut(pair, "=")
		var c RuleCounts
		for i, digits := range strings.Split(numbers, ",") {
			n, err := strconv.ParseUint(digits, 10, 64)
			if err != nil || !ruleName(name) || n > maxCount {
				return RuleReport{}, fmt.Errorf(
					"has %.96q, expected rule=n,n..., each n up to %d, with spaces between", pair, int64(maxCount))
			}
			if i < RuleCells {
				c[i] = n
			}
		}
		if name == ruleAge {
			r.AgeMS = int64(c[0])
			continue
		}
		if _, known := r.Rules[name]; !known && len(r.Rules) >= maxRules {
			name = Other
		}
		sum := r.Rules[name]
		sum.Add(&c)
		r.Rules[name] = sum
	}
	return r, nil
}

// ruleName reports whether something can have a name in a report.
func ruleName(name string) bool {
	return name == Default || name == ruleAge || freeslot.ValidateName("rule", name) == nil
}

// No rule has such names.
const (
	// Default counts for the default outcome.
	Default = "(default)"
	// ruleAge is the name of RuleReport.AgeMS.
	ruleAge = "(age_ms)"
)
