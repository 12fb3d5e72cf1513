package selection

import (
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
)

// The twins follow the package's documentation sentence by sentence, without anything prepared in
// advance. They share no code with the package.

// slowMatch returns the reason against the node, or "" and its tier: the position of
// the pool by which it is a candidate, -1 for the members of the preferred pool.
func slowMatch(cfg *Config, n *freeslot.Node, service string, r *freeslot.Requirement) (Reason, int) {
	all := append([]string{service}, r.Services...)
	for _, entry := range all {
		if name, _, _ := strings.Cut(entry, "@"); !slowOffers(n, name) {
			return ReasonService, 0
		}
	}
	for _, entry := range all {
		if !slowOffers(n, entry) {
			return ReasonServiceVersion, 0
		}
	}
	tier, ok := slowTier(cfg, n, r)
	if !ok {
		return ReasonPool, 0
	}
	source, target := r.SourceLanguage, r.TargetLanguage
	if source != "" && !slowFind(n.Languages.ASR, source) {
		return ReasonSourceLanguage, 0
	}
	if target != "" && !slowFind(n.Languages.TTS, target) {
		return ReasonTargetLanguage, 0
	}
	if semantic := n.Languages.Semantic; len(semantic) > 0 && source != "" && target != "" {
		if !slowFind(semantic, source) || !slowFind(semantic, target) {
			return ReasonLanguagePair, 0
		}
	}
	if !slowLabelled(n, r.Labels) {
		return ReasonLabels, 0
	}
	for _, rule := range r.LabelRules {
		if !slowRule(n, rule) {
			return ReasonLabels, 0
		}
	}
	for _, name := range r.Features {
		if has, known := n.Features[name]; !known || !has {
			return ReasonFeatures, 0
		}
	}
	return "", tier
}

func slowTier(cfg *Config, n *freeslot.Node, r *freeslot.Requirement) (int, bool) {
	tier, ok := slowAllowed(cfg, n, r)
	if ok && r.PreferredPool != "" && slices.Contains(slowPools(cfg, n), r.PreferredPool) {
		return -1, true
	}
	return tier, ok
}

func slowAllowed(cfg *Config, n *freeslot.Node, r *freeslot.Requirement) (int, bool) {
	if r.Pool != "" {
		return 0, slices.Contains(slowPools(cfg, n), r.Pool)
	}
	if !cfg.Enabled || cfg.Mode == ModeFlat {
		return 0, true
	}
	restricted := false
	for i, p := range cfg.Pools {
		coversSource := r.SourceLanguage == "" || slowFind(p.SourceLanguages, r.SourceLanguage)
		coversTarget := r.TargetLanguage == "" || slowFind(p.TargetLanguages, r.TargetLanguage)
		statesAny := r.SourceLanguage+r.TargetLanguage != ""
		if statesAny && coversSource && coversTarget {
			restricted = true
			if slowMember(p, n) {
				return i, true
			}
		}
	}
	return 0, !restricted
}

// slowPools are all pools that the node is in.
func slowPools(cfg *Config, n *freeslot.Node) []string {
	ids := slices.Clone(n.Pools)
	for _, p := range cfg.Pools {
		if cfg.Enabled && slowMember(p, n) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func slowMember(p Pool, n *freeslot.Node) bool {
	for _, id := range n.Pools {
		if id == p.ID {
			return true
		}
	}
	for _, id := range p.Members {
		if id == n.ID {
			return true
		}
	}
	if len(p.SourceLanguages)+len(p.TargetLanguages)+len(p.Services)+len(p.Labels) == 0 {
		return false
	}
	for _, s := range p.Services {
		if !slowOffers(n, s) {
			return false
		}
	}
	return slowLabelled(n, p.Labels) &&
		slowFindOne(n.Languages.ASR, p.SourceLanguages) && slowFindOne(n.Languages.TTS, p.TargetLanguages)
}

func slowFindOne(offered, listed []string) bool {
	for _, tag := range listed {
		if slowFind(offered, tag) {
			return true
		}
	}
	return len(listed) == 0
}

// slowInRange are the ranges that the generators know, and the versions in them.
var slowInRange = map[string]string{
	">=2":         " 2 2.1.0 3 ",
	"^1":          " 1 1.4 v1.9.9 ",
	">=1.2 <2.1":  " 1.4 v1.9.9 2 ",
	"1.x || >2.5": " 1 1.4 v1.9.9 3 ",
}

func slowOffers(n *freeslot.Node, entry string) bool {
	name, versions, ranged := strings.Cut(entry, "@")
	for _, s := range n.Services {
		if s.Name == name && (!ranged || s.Version != "" && strings.Contains(slowInRange[versions], " "+s.Version+" ")) {
			return true
		}
	}
	return false
}

// slowRule knows labels that are one digit, or no number.
func slowRule(n *freeslot.Node, r freeslot.LabelRule) bool {
	value, there := n.Labels[r.Label]
	among := false
	for _, v := range r.Values {
		among = among || there && v == value
	}
	first := ""
	if len(r.Values) > 0 {
		first = r.Values[0]
	}
	number := there && len(value) == 1 && value >= "0" && value <= "9"
	return map[freeslot.LabelOperator]bool{
		freeslot.LabelIn: among, freeslot.LabelNotIn: !among, freeslot.LabelExists: there, freeslot.LabelNotExists: !there,
		freeslot.LabelGreater: number && value > first, freeslot.LabelGreaterEqual: number && value >= first,
		freeslot.LabelLess: number && value < first, freeslot.LabelLessEqual: number && value <= first,
	}[r.Operator]
}

func slowLabelled(n *freeslot.Node, labels map[string]string) bool {
	missing := len(labels)
	for name, value := range n.Labels {
		if want, ok := labels[name]; ok && want == value {
			missing--
		}
	}
	return missing == 0
}

func slowCheck(m *modelNode, q Query) Reason {
	if m.profile.MaxConcurrency < q.Slots {
		return ReasonSlots
	}
	if q.Skip.Has(m.cell) {
		return ReasonUnreachable
	}
	if m.draining {
		return ReasonDraining
	}
	if !m.seen || m.seenAt+int64(q.SilenceLimit) < q.Now {
		return ReasonSilent
	}
	if m.resting && !q.IgnoreFull {
		return ReasonQuarantined
	}
	if m.used+m.pending+q.Slots > m.profile.MaxConcurrency && !q.IgnoreFull {
		return ReasonFull
	}
	for _, id := range q.Exclude {
		if id == m.profile.ID {
			return ReasonExcluded
		}
	}
	return ""
}
