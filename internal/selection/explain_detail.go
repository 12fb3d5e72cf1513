package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// mismatch says what the profile has and what the job needs, in words. why is the reason that match
// returned.
func (f *filter) mismatch(p *Profile, why Reason) string {
	switch why {
	case ReasonService:
		return fmt.Sprintf("service %s is not offered, only %s", f.services.missing(p), list(p.services))
	case ReasonServiceVersion:
		return f.versionMismatch(p)
	case ReasonPool:
		return fmt.Sprintf("is in %s, expected %s", pools(f.cfg.members(p)), poolsOf(f.pools))
	case ReasonSourceLanguage:
		return fmt.Sprintf("understands %s, expected %s", list(p.source.tags), orShorter(f.source))
	case ReasonTargetLanguage:
		return fmt.Sprintf("produces %s, expected %s", list(p.target.tags), orShorter(f.target))
	case ReasonLanguagePair:
		return fmt.Sprintf(
			"translates between %s, expected both %s and %s", list(p.semantic.tags), orShorter(f.source), orShorter(f.target),
		)
	case ReasonFeatures:
		return f.featureMismatch(p)
	default:
		return f.labelMismatch(p)
	}
}

func (f *filter) versionMismatch(p *Profile) string {
	want := f.services.outOfRange(p)
	var versions []string
	for _, installed := range p.node.Services {
		if installed.Name == want.name && installed.Version != "" {
			versions = append(versions, installed.Version)
		}
	}
	if len(versions) == 0 {
		return fmt.Sprintf("service %s states no version, expected %s", want.name, want.text)
	}
	return fmt.Sprintf("service %s is %s, expected %s", want.name, list(versions), want.text)
}

func (f *filter) labelMismatch(p *Profile) string {
	for _, name := range slices.Sorted(maps.Keys(f.labels)) {
		if got, ok := p.node.Labels[name]; !ok || got != f.labels[name] {
			return labelIs(p, name) + ", expected " + quoted(f.labels[name])
		}
	}
	rule := p.failsRule(f.rules)
	if rule == nil {
		return ""
	}
	return labelIs(p, rule.Label) + ", expected " + ruleWords(rule)
}

func (f *filter) featureMismatch(p *Profile) string {
	name := p.lacks(f.features)
	if _, ok := p.node.Features[name]; ok {
		return "feature " + name + " is false, expected true"
	}
	return "feature " + name + " is missing"
}

func labelIs(p *Profile, name string) string {
	if got, ok := p.node.Labels[name]; ok {
		return "label " + name + " is " + quoted(got)
	}
	return "label " + name + " is missing"
}

func ruleWords(r *freeslot.LabelRule) string {
	switch r.Operator {
	case freeslot.LabelIn:
		return "in " + list(r.Values)
	case freeslot.LabelNotIn:
		return "not in " + list(r.Values)
	case freeslot.LabelExists:
		return "any value"
	case freeslot.LabelNotExists:
		return "none"
	default:
		sign := map[freeslot.LabelOperator]string{
			freeslot.LabelGreater: ">", freeslot.LabelGreaterEqual: ">=", freeslot.LabelLess: "<", freeslot.LabelLessEqual: "<=",
		}
		return "a number " + sign[r.Operator] + " " + strings.Join(r.Values, ",")
	}
}

// detail says why the node's state fails the query, in words. why is the reason that check
// returned; the figures can have changed since.
func (q *Query) detail(n *Node, why Reason) string {
	w := q.need()
	used, pending := n.Load()
	switch why {
	case ReasonSlots:
		return fmt.Sprintf("max_concurrency is %d, expected at least %d", n.Max(), w.slots)
	case ReasonUnreachable:
		return fmt.Sprintf("its cell %d does not answer", n.Cell())
	case ReasonDraining:
		return "takes no new jobs"
	case ReasonSilent:
		at, ok := n.SeenAt()
		if !ok {
			return "nothing was heard from it"
		}
		return fmt.Sprintf("last heard from %s ago, expected within %s", short(w.now-at), short(w.now-w.earliest))
	case ReasonQuarantined:
		return fmt.Sprintf("refused %d jobs in a row, left alone for another %s", n.refusals(), short(n.rest.Load()-w.now))
	case ReasonFull:
		return fmt.Sprintf("%d of %d slots are free, expected %d", max(n.Max()-used-pending, 0), n.Max(), w.slots)
	default:
		return "the query leaves it out"
	}
}

func short(ns int64) string { return time.Duration(ns).Round(time.Millisecond).String() }

func list(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = quoted(value)
	}
	return strings.Join(words, ",")
}

// quoted adds quotes only if they are needed.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " ,\"\\") {
		return fmt.Sprintf("%q", value)
	}
	return value
}

func pools(ids []string) string {
	switch len(ids) {
	case 0:
		return "no pool"
	case 1:
		return "pool " + ids[0]
	default:
		return "pools " + list(ids)
	}
}

func poolsOf(rules []*rule) string {
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.id
	}
	if len(ids) == 1 {
		return "pool " + ids[0]
	}
	return "one of " + list(ids)
}

// whyPools says why a job that names no pool is restricted to some, in words.
func (f *filter) whyPools() string {
	verb := ", which covers "
	if len(f.pools) > 1 {
		verb = ", which cover "
	}
	switch {
	case f.target == "":
		return verb + "the source language " + f.source
	case f.source == "":
		return verb + "the target language " + f.target
	default:
		return verb + f.source + ">" + f.target
	}
}

func orShorter(tag string) string {
	if shorten(tag) == "" {
		return tag
	}
	return tag + " or a shorter form of it"
}
