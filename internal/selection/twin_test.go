package selection

import (
	"strings"

	"github.com/freeslot/freeslot"
)

// The twins say the same as the package, one sentence of its documentation after
// the other, without anything prepared in advance. They share no code with it.

// slowMatch returns the reason against the node, or "" and the position of the
// pool by which it is a candidate.
func slowMatch(pools Pools, n *freeslot.Node, service string, r *freeslot.Requirement) (Reason, int) {
	if !slowOffers(n, service) {
		return ReasonService, 0
	}
	for _, s := range r.Services {
		if !slowOffers(n, s) {
			return ReasonService, 0
		}
	}
	tier, ok := slowTier(pools, n, r)
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
	return "", tier
}

func slowTier(pools Pools, n *freeslot.Node, r *freeslot.Requirement) (int, bool) {
	if r.Pool != "" {
		for _, p := range pools {
			if p.ID == r.Pool {
				return 0, slowMember(p, n)
			}
		}
		return 0, slowMember(Pool{ID: r.Pool}, n)
	}
	restricted := false
	for i, p := range pools {
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

func slowMember(p Pool, n *freeslot.Node) bool {
	for _, id := range n.Pools {
		if id == p.ID {
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

func slowOffers(n *freeslot.Node, service string) bool {
	names := ","
	for _, s := range n.Services {
		names += s.Name + ","
	}
	return strings.Contains(names, ","+service+",")
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
	if m.draining {
		return ReasonDraining
	}
	if !m.seen || m.seenAt+int64(q.SilenceLimit) < q.Now {
		return ReasonSilent
	}
	if m.used+m.pending+q.Slots > m.profile.MaxConcurrency {
		return ReasonFull
	}
	for _, id := range q.Exclude {
		if id == m.profile.ID {
			return ReasonExcluded
		}
	}
	return ""
}
