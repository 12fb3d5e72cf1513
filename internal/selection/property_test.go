package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// Small universes, so that fits and collisions are common. Who uses them does not run beside others
// that do: a generator makes its name when it is first drawn from, which rapid 1.3 does not guard.
var (
	genTag     = rapid.SampledFrom([]string{"de", "DE-at", "de-AT-x-a-b", "de-x-a", "en", "en_GB", "zh", "zh-Hant", "zh-hant-TW", "zh-u-co-pinyin"})
	genService = rapid.SampledFrom([]string{"asr", "tts", "ocr"})
	genPoolID  = rapid.SampledFrom([]string{"p", "q", "r", "s", "t", "u", "v", "w"})
	genVersion = rapid.SampledFrom([]string{"", "1", "1.4", "v1.9.9", "2", "2.1.0", "3", "nightly", "2.x"})
	genEntry   = rapid.SampledFrom([]string{"asr", "tts", "ocr", "asr@>=2", "tts@^1", "tts@>=1.2 <2.1", "asr@1.x || >2.5", "ocr@>=2"})
	genLabels  = rapid.MapOfN(rapid.SampledFrom([]string{"zone", "gpu"}), rapid.SampledFrom([]string{"a", "b", "3", "5"}), 0, 2)
	genFeature = rapid.SampledFrom([]string{"emotion", "stream"})
	genRule    = rapid.Custom(func(t *rapid.T) freeslot.LabelRule {
		r := freeslot.LabelRule{
			Label:    rapid.SampledFrom([]string{"zone", "gpu", "rack"}).Draw(t, "label"),
			Operator: rapid.SampledFrom(freeslot.LabelOperators()).Draw(t, "operator"),
		}
		switch r.Operator {
		case freeslot.LabelIn, freeslot.LabelNotIn:
			r.Values = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "3"}), 1, 3).Draw(t, "values")
		case freeslot.LabelExists, freeslot.LabelNotExists:
		default:
			r.Values = []string{rapid.SampledFrom([]string{"2", "3", "4", "5"}).Draw(t, "number")}
		}
		return r
	})
)

func few[T any](t *rapid.T, g *rapid.Generator[T], limit int, label string) []T {
	return rapid.SliceOfN(g, 0, limit).Draw(t, label)
}

func genNode(t *rapid.T, id string) *freeslot.Node {
	return &freeslot.Node{
		ID:             id,
		MaxConcurrency: rapid.IntRange(1, 4).Draw(t, "max"),
		Services:       genServices(t),
		Languages: freeslot.Languages{
			ASR: few(t, genTag, 3, "asr"), TTS: few(t, genTag, 3, "tts"), Semantic: few(t, genTag, 3, "semantic"),
		},
		Pools:    few(t, genPoolID, 2, "node pools"),
		Labels:   genLabels.Draw(t, "node labels"),
		Features: rapid.MapOfN(genFeature, rapid.Bool(), 0, 2).Draw(t, "features"),
	}
}

func genServices(t *rapid.T) []freeslot.Service {
	list := services(few(t, genService, 3, "services")...)
	for i := range list {
		list[i].Version = genVersion.Draw(t, "version")
	}
	return list
}

func genConfig(t *rapid.T) *Config {
	cfg := &Config{
		Enabled: rapid.IntRange(0, 4).Draw(t, "enabled") > 0,
		Mode:    rapid.SampledFrom([]Mode{"", ModeTwoLevel, ModeTwoLevel, ModeFlat}).Draw(t, "mode"),
		Policy:  rapid.SampledFrom([]Policy{"", PolicyLeastLoaded, PolicyBinpack}).Draw(t, "policy"),
		Pools:   genPools(t),
	}
	if err := cfg.Validate("").Err(); err != nil {
		t.Fatalf("the generated configuration is invalid: %v", err)
	}
	return cfg
}

func genPools(t *rapid.T) Pools {
	var pools Pools
	for _, id := range rapid.SliceOfNDistinct(genPoolID, 0, 7, rapid.ID).Draw(t, "pools") {
		pools = append(pools, Pool{
			ID:              id,
			SourceLanguages: few(t, genTag, 2, "pool source"),
			TargetLanguages: few(t, genTag, 2, "pool target"),
			Services:        few(t, genEntry, 1, "pool services"),
			Members:         few(t, rapid.SampledFrom([]string{"n", "n0", "n1", "n2", "n3"}), 2, "members"),
			Labels:          genLabels.Draw(t, "pool labels"),
		})
	}
	return pools
}

func genRequirement(t *rapid.T) *freeslot.Requirement {
	orNone := func(g *rapid.Generator[string], label string) string {
		return rapid.OneOf(rapid.Just(""), g).Draw(t, label)
	}
	return &freeslot.Requirement{
		Pool:           orNone(genPoolID, "pool"),
		PreferredPool:  orNone(genPoolID, "preferred pool"),
		Services:       few(t, genEntry, 2, "further services"),
		SourceLanguage: orNone(genTag, "source"),
		TargetLanguage: orNone(genTag, "target"),
		Labels:         genLabels.Draw(t, "labels"),
		LabelRules:     few(t, genRule, 1, "label rules"),
		Features:       few(t, genFeature, 1, "features"),
	}
}

func TestMatchAgreesWithTwin(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		node, cfg, service, r := genNode(t, "n"), genConfig(t), genService.Draw(t, "service"), genRequirement(t)
		p := Compile(node)
		want, _ := slowMatch(cfg, node, service, r)
		for range 2 { // the second time, what was prepared is used again
			if got := p.Match(cfg, service, r); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		want, _ = slowMatch(&Config{}, node, service, r)
		if got := p.Match(nil, service, r); got != want {
			t.Fatalf("without pools: got %q, want %q", got, want)
		}
		if got := p.Match(&Config{Pools: cfg.Pools}, service, r); got != want {
			t.Fatalf("disabled: got %q, want %q", got, want)
		}
	})
}

// With as many pools as there can be, a node's tier is the first of those that cover
// the job and have it.
func TestTierOfManyPools(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		cfg, source := &Config{Enabled: true}, NewSource(rapid.Uint64().Draw(t, "seed"))
		for i := range MaxConfiguredPools {
			p := Pool{ID: fmt.Sprintf("p%d", i), SourceLanguages: []string{[]string{"de", "en"}[source.intn(2)]}}
			if source.intn(60) == 0 {
				p.Members = []string{"n"}
			}
			cfg.Pools = append(cfg.Pools, p)
		}
		node := &freeslot.Node{ID: "n", MaxConcurrency: 1, Services: services("tts"), Languages: freeslot.Languages{ASR: []string{"de"}}}
		for i := range cfg.Pools {
			cfg.Pools[i].Services = []string{"none"} // members only
		}
		covering, want := 0, -1
		for _, p := range cfg.Pools {
			if p.SourceLanguages[0] == "de" {
				if want < 0 && len(p.Members) > 0 {
					want = covering
				}
				covering++
			}
		}
		f, profile := newFilter(compile(cfg), "tts", &freeslot.Requirement{SourceLanguage: "de"}), Compile(node)
		// Its pools under another configuration make no difference.
		compile(&Config{Enabled: true, Pools: Pools{{ID: "x", Members: []string{"n"}}}}).memberships(profile)
		if got := f.tier(profile); got != want || f.tierCount() != covering {
			t.Fatalf("got tier %d of %d, want %d of %d", got, f.tierCount(), want, covering)
		}
	})
}

// A node is listed under exactly the pools in which a job that names one finds it.
func TestMembersAgreesWithRequirementPool(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		node, cfg := genNode(t, "n"), genConfig(t)
		node.Services = append(node.Services, freeslot.Service{Name: "always"})
		members := cfg.Members(node)
		for _, id := range []string{"p", "q", "r", "s", "t", "u", "v", "w"} {
			why := Compile(node).Match(cfg, "always", &freeslot.Requirement{Pool: id})
			if slices.Contains(members, id) != (why == "") || slices.Contains(slowPools(cfg, node), id) != (why == "") {
				t.Fatalf("pool %s: members %q, match %q", id, members, why)
			}
		}
	})
}

// The pools of a pair are those that a job with the pair is restricted to, in order.
func TestLanguagePairsAgreeWithCoverage(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		want := map[string][]string{}
		for _, p := range cfg.Pools {
			for _, source := range p.SourceLanguages {
				for _, target := range p.TargetLanguages {
					pair := strings.Join(slowSubtags(source), "-") + ":" + strings.Join(slowSubtags(target), "-")
					if cfg.Enabled && cfg.Mode != ModeFlat && !slices.Contains(want[pair], p.ID) {
						want[pair] = append(want[pair], p.ID)
					}
				}
			}
		}
		if diff := cmp.Diff(want, cfg.LanguagePairs()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// modelNode is what the twin knows of a node.
type modelNode struct {
	profile       *freeslot.Node
	used, pending int
	seen          bool
	seenAt        int64
	draining      bool
	resting       bool
	cell          int
}

func genFleet(t *rapid.T) ([]*Node, map[string]*modelNode) {
	nodes, models := []*Node(nil), map[string]*modelNode{}
	cells := rapid.IntRange(1, 4).Draw(t, "cells")
	for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
		m := &modelNode{
			profile: genNode(t, fmt.Sprintf("n%d", i)),
			used:    rapid.IntRange(0, 4).Draw(t, "used"),
			seen:    rapid.IntRange(0, 9).Draw(t, "seen") > 0,
			seenAt:  rapid.Int64Range(-9, 9).Draw(t, "seen at"),
		}
		m.draining = rapid.IntRange(0, 4).Draw(t, "draining") == 0
		m.resting = rapid.IntRange(0, 4).Draw(t, "resting") == 0
		m.cell = rapid.IntRange(0, cells-1).Draw(t, "cell")
		n := NewNode(Compile(m.profile), m.cell)
		for range QuarantineAfter {
			if m.resting {
				n.Refused(0)
			}
		}
		if rapid.Bool().Draw(t, "take") && n.TryTake(1) {
			m.pending = 1
		}
		n.SetUsed(m.used)
		n.SetDraining(m.draining)
		if m.seen {
			n.Seen(m.seenAt)
		}
		nodes, models[m.profile.ID] = append(nodes, n), m
	}
	return nodes, models
}

func genQuery(t *rapid.T) Query {
	return Query{
		Want:         rapid.IntRange(1, 8).Draw(t, "want"),
		Slots:        rapid.IntRange(1, 3).Draw(t, "slots"),
		Samples:      rapid.IntRange(0, 10).Draw(t, "samples"),
		Now:          rapid.Int64Range(0, 20).Draw(t, "now"),
		SilenceLimit: time.Duration(rapid.Int64Range(1, 20).Draw(t, "limit")),
		IgnoreFull:   rapid.IntRange(0, 3).Draw(t, "ignore full") == 0,
		AffinityKey:  rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "affinity key"),
		Skip:         CellMask(rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "skip")),
		Exclude:      few(t, rapid.SampledFrom([]string{"n0", "n1", "n2", "x"}), 3, "exclude"),
	}
}

// Choose, Breakdown and Explain against the twin: only nodes that qualify are chosen,
// without repetition, all of one cell, as many as wanted or as that cell has, tier by
// tier; if any qualifies one is chosen; and every node is counted once.
func TestChooseAgreesWithTwin(t *testing.T) { //nolint:paralleltest // shares generators
	rapid.Check(t, func(t *rapid.T) {
		nodes, models := genFleet(t)
		cfg, r, q := genConfig(t), genRequirement(t), genQuery(t)
		cfg.Paused = genPaused(t, class.ID("tts", r))
		class := NewIdentity("tts", r).NewClass(genShare(t), nodes, cfg)
		qualifying, reasons, fits, small := map[string]int{}, map[string]int{}, 0, 0
		for id, m := range models {
			why, tier := slowMatch(cfg, m.profile, "tts", r)
			if why == "" {
				fits++
				why = slowCheck(m, q)
				if why == ReasonSlots {
					small++
				}
				var paused bool
				if paused, tier = slowPaused(cfg, m.profile, "tts", r); paused {
					why = ReasonPaused
				}
			}
			if why == "" {
				qualifying[id] = tier
			} else {
				reasons[string(why)]++
			}
		}
		if class.Fits() != fits {
			t.Fatalf("got %d fits, want %d", class.Fits(), fits)
		}
		for _, n := range nodes {
			if why, _ := slowMatch(cfg, models[n.ID()].profile, "tts", r); class.Has(n) != (why == "") {
				t.Fatalf("Has(%s) is %t, but %q speaks against it", n.ID(), class.Has(n), why)
			}
			paused, _ := slowPaused(cfg, models[n.ID()].profile, "tts", r)
			if class.Takes(n) != (class.Has(n) && !paused) {
				t.Fatalf("Takes(%s) is %t, it fits: %t, is paused: %t", n.ID(), class.Takes(n), class.Has(n), paused)
			}
		}
		if got := class.Breakdown(&q); !maps.Equal(got, reasons) {
			t.Fatalf("breakdown: got %v, want %v", got, reasons)
		}
		checkExplanation(t, Explain(nodes, cfg, "tts", r, &q), models, qualifying, reasons, fits-small)
		asked := fmt.Sprintf("%+v", q)
		source := NewSource(rapid.Uint64().Draw(t, "seed"))
		for range rapid.IntRange(1, 3).Draw(t, "choices") {
			got := class.Choose(make([]*Node, 0, 8), &q, source)
			if fmt.Sprintf("%+v", q) != asked {
				t.Fatalf("the query was changed")
			}
			checkChoice(t, ids(got), models, qualifying, q.Want)
		}
	})
}

// genShare draws a share, which may be nil: what may be chosen is the same with any.
func genShare(t *rapid.T) *Share {
	names := replicaNames(rapid.IntRange(0, 4).Draw(t, "replicas"))
	return NewShare("r0", names)
}

func checkChoice(t *rapid.T, chosen []string, models map[string]*modelNode, qualifying map[string]int, want int) {
	if len(chosen) == 0 {
		if len(qualifying) > 0 {
			t.Fatalf("none is chosen of %v", qualifying)
		}
		return
	}
	cell, inCell := models[chosen[0]].cell, map[string]int{}
	for id, tier := range qualifying {
		if tier < qualifying[chosen[0]] {
			t.Fatalf("%s of tier %d is first, %s of tier %d is not", chosen[0], qualifying[chosen[0]], id, tier)
		}
		if models[id].cell == cell {
			inCell[id] = tier
		}
	}
	if len(chosen) != min(want, len(inCell)) {
		t.Fatalf("got %q, want %d of %v", chosen, want, inCell)
	}
	checkTierOrder(t, chosen, inCell)
}

func checkExplanation(t *rapid.T, e Explanation, models map[string]*modelNode, qualifying, reasons map[string]int, fits int) {
	if e.Total != len(models) || e.Fits != fits || e.Qualify != len(qualifying) || !maps.Equal(e.Breakdown, reasons) {
		t.Fatalf("explanation: got %+v, want %d nodes, %d fit, %d qualify, %v", e, len(models), fits, len(qualifying), reasons)
	}
	tiers := 0
	for _, tier := range e.Tiers {
		tiers += tier.Qualify
	}
	for _, n := range e.Nodes {
		if _, ok := qualifying[n.Node]; ok != (n.Reason == "") || ok != (n.Detail == "") || n.Fits != (n.Tier >= 0) || n.Cell != models[n.Node].cell {
			t.Fatalf("node %+v, qualifies: %t", n, ok)
		}
	}
	if tiers != e.Qualify || len(e.Nodes) != e.Total {
		t.Fatalf("%d qualify by tier, %d in all; %d nodes of %d", tiers, e.Qualify, len(e.Nodes), e.Total)
	}
}

func checkTierOrder(t *rapid.T, chosen []string, tiers map[string]int) {
	for i, id := range chosen {
		if _, ok := tiers[id]; !ok {
			t.Fatalf("%s does not qualify", id)
		}
		if slices.Contains(chosen[:i], id) {
			t.Fatalf("%s is chosen twice", id)
		}
		for other, tier := range tiers {
			if tier < tiers[id] && !slices.Contains(chosen[:i], other) {
				t.Fatalf("%s of tier %d is chosen before %s of tier %d", id, tiers[id], other, tier)
			}
		}
	}
}
