package selection

import (
	"slices"
	"sync/atomic"

	"github.com/freeslot/freeslot"
)

// Profile is a freeslot.Node prepared for matching. What it says never changes; it
// is safe for concurrent use.
type Profile struct {
	node     *freeslot.Node
	services set
	pools    set
	// source, target and semantic are the stages of freeslot.Languages.
	source   languages
	target   languages
	semantic languages
	// memberships is the last answer of compiled.memberships.
	memberships atomic.Pointer[memberships]
}

// Compile prepares a valid profile. It keeps n, which must not change any more.
func Compile(n *freeslot.Node) *Profile { return (*Compiler)(nil).Compile(n) }

// Node is what was compiled. The caller must not change it.
func (p *Profile) Node() *freeslot.Node { return p.node }

func (p *Profile) hasLabels(labels map[string]string) bool {
	for name, want := range labels {
		if got, ok := p.node.Labels[name]; !ok || got != want {
			return false
		}
	}
	return true
}

// failsRule returns the first rule that does not hold for the labels, nil if all do.
func (p *Profile) failsRule(rules []freeslot.LabelRule) *freeslot.LabelRule {
	for i := range rules {
		if !rules[i].Holds(p.node.Labels) {
			return &rules[i]
		}
	}
	return nil
}

// hasPair implements the rule of freeslot.Languages.Semantic; "" is no language.
func (p *Profile) hasPair(source, target string) bool {
	if len(p.semantic.tags) == 0 || source == "" || target == "" {
		return true
	}
	return p.semantic.find(source) && p.semantic.find(target)
}

// set is an immutable set of strings: sorted and without repetition. Sets are
// small and there are several to a node, which is where maps waste memory.
type set []string

// newSet takes ownership of names.
func newSet(names []string) set {
	slices.Sort(names)
	return slices.Clip(slices.Compact(names))
}

func (s set) has(name string) bool {
	_, ok := slices.BinarySearch(s, name)
	return ok
}
