package selection

import (
	"slices"
	"sync/atomic"

	"github.com/freeslot/freeslot"
)

// Profile is a freeslot.Node prepared for matching. It never changes and is safe for concurrent
// use.
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
func Compile(n *freeslot.Node) *Profile {
	services := make([]string, len(n.Services))
	for i, s := range n.Services {
		services[i] = s.Name
	}
	return &Profile{
		node:     n,
		services: newSet(services),
		pools:    newSet(slices.Clone(n.Pools)),
		source:   newLanguages(n.Languages.ASR),
		target:   newLanguages(n.Languages.TTS),
		semantic: newLanguages(n.Languages.Semantic),
	}
}

// Node returns the node that was compiled. The caller must not change it.
func (p *Profile) Node() *freeslot.Node { return p.node }

func (p *Profile) hasLabels(labels map[string]string) bool {
	for name, want := range labels {
		if got, ok := p.node.Labels[name]; !ok || got != want {
			return false
		}
	}
	return true
}

// failsRule returns the first rule that does not hold for the labels; nil if all hold.
func (p *Profile) failsRule(rules []freeslot.LabelRule) *freeslot.LabelRule {
	for i := range rules {
		if !rules[i].Holds(p.node.Labels) {
			return &rules[i]
		}
	}
	return nil
}

// lacks returns the first feature that the node does not have; "" if it has all.
func (p *Profile) lacks(features []string) string {
	for _, name := range features {
		if !p.node.Features[name] {
			return name
		}
	}
	return ""
}

// hasPair implements the rule of freeslot.Languages.Semantic. "" means no language.
func (p *Profile) hasPair(source, target string) bool {
	if len(p.semantic.tags) == 0 || source == "" || target == "" {
		return true
	}
	return p.semantic.find(source) && p.semantic.find(target)
}

// set is an immutable set of strings: sorted and without repetition. Each node has several small
// sets, for which maps would waste memory.
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
