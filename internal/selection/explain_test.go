package selection

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// Every reason has its words.
func TestExplainDetails(t *testing.T) {
	t.Parallel()
	requirement := &freeslot.Requirement{
		PreferredPool: "gold", Services: []string{"asr@>=1.2 <2"}, SourceLanguage: "de-AT", TargetLanguage: "en",
		Labels:     map[string]string{"zone": "eu 1"},
		LabelRules: []freeslot.LabelRule{{Label: "gpu", Operator: "in", Values: []string{"A100", "H100"}}, {Label: "ram", Operator: "ge", Values: []string{"64"}}},
		Features:   []string{"emotion"},
	}
	cfg := &Config{Enabled: true, Pools: Pools{
		{ID: "main", SourceLanguages: []string{"de"}, TargetLanguages: []string{"en"}},
		{ID: "more", SourceLanguages: []string{"de"}, TargetLanguages: []string{"en"}, Members: []string{"more-1"}},
		{ID: "gold"},
	}}
	now := int64(time.Minute)
	var nodes []*Node
	add := func(id string, change func(*freeslot.Node), state func(*Node)) {
		profile := &freeslot.Node{
			ID: id, MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts"}, {Name: "asr", Version: "1.4"}},
			Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"en", "fr"}},
			Labels:    map[string]string{"zone": "eu 1", "gpu": "A100", "ram": "128"}, Pools: []string{"main"}, Features: map[string]bool{"emotion": true},
		}
		change(profile)
		n := NewNode(Compile(profile), 0)
		n.Seen(now)
		state(n)
		nodes = append(nodes, n)
	}
	same, fine := func(*freeslot.Node) {}, func(*Node) {}
	add("good", same, fine)
	add("gold", func(n *freeslot.Node) { n.Pools = []string{"gold", "main"} }, fine)
	add("no-service", func(n *freeslot.Node) { n.Services = n.Services[:1] }, fine)
	add("version", func(n *freeslot.Node) { n.Services[1].Version = "2.0" }, fine)
	add("no-version", func(n *freeslot.Node) { n.Services[1].Version = "" }, fine)
	add("pool", func(n *freeslot.Node) { n.Pools, n.Languages.ASR = []string{"x", "gold"}, nil }, fine)
	add("source", func(n *freeslot.Node) { n.Languages.ASR = []string{"it", "fr"} }, fine)
	add("target", func(n *freeslot.Node) { n.Languages.TTS = nil }, fine)
	add("pair", func(n *freeslot.Node) { n.Languages.Semantic = []string{"en"} }, fine)
	add("label", func(n *freeslot.Node) { n.Labels["zone"] = "us" }, fine)
	add("no-label", func(n *freeslot.Node) { delete(n.Labels, "zone") }, fine)
	add("rule", func(n *freeslot.Node) { n.Labels["gpu"] = "T4" }, fine)
	add("number", func(n *freeslot.Node) { n.Labels["ram"] = "32" }, fine)
	add("feature", func(n *freeslot.Node) { n.Features["emotion"] = false }, fine)
	add("no-feature", func(n *freeslot.Node) { n.Features = nil }, fine)
	add("slots", func(n *freeslot.Node) { n.MaxConcurrency = 1 }, fine)
	add("draining", same, func(n *Node) { n.SetDraining(true) })
	add("unheard", same, func(n *Node) { n.MarkSilent() })
	add("silent", same, func(n *Node) { n.MarkSilent(); n.Seen(now - int64(9*time.Second)) })
	add("resting", same, func(n *Node) { n.Refused(now); n.Refused(now); n.Refused(now) })
	add("full", same, func(n *Node) { n.TryTake(1); n.SetUsed(2) })
	add("excluded", same, fine)
	e := Explain(nodes, cfg, "tts", requirement, &Query{Slots: 2, Now: now, Exclude: []string{"excluded"}})

	want := map[string]string{
		"good": "", "gold": "",
		"no-service": "service asr is not offered, only tts",
		"version":    "service asr is 2.0, expected >=1.2 <2",
		"no-version": "service asr states no version, expected >=1.2 <2",
		"pool":       "is in pools gold,x, expected one of main,more, which cover de-at>en",
		"source":     "understands fr,it, expected de-at or a shorter form of it",
		"target":     "produces none, expected en",
		"pair":       "translates between en, expected both de-at or a shorter form of it and en",
		"label":      `label zone is us, expected "eu 1"`,
		"no-label":   `label zone is missing, expected "eu 1"`,
		"rule":       "label gpu is T4, expected in A100,H100",
		"number":     "label ram is 32, expected a number >= 64",
		"feature":    "feature emotion is false, expected true",
		"no-feature": "feature emotion is missing",
		"slots":      "max_concurrency is 1, expected at least 2",
		"draining":   "takes no new jobs",
		"unheard":    "nothing was heard from it",
		"silent":     "last heard from 9s ago, expected within 8s",
		"resting":    "refused 3 jobs in a row, left alone for another 250ms",
		"full":       "1 of 4 slots are free, expected 2",
		"excluded":   "the query leaves it out",
	}
	got := make(map[string]string)
	for _, n := range e.Nodes {
		got[n.Node] = n.Detail
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := "s=asr@<2 >=1.2,tts p=>gold l=de-at>en; zone=eu 1; gpu in A100 H100; ram ge 64; feature emotion"; e.Class != want {
		t.Errorf("got class %q, want %q", e.Class, want)
	}
	e.Nodes = e.Nodes[:2]
	summary := Explanation{
		Service: "tts", Class: e.Class, Mode: ModeTwoLevel, Policy: PolicyLeastLoaded, Total: 22, Fits: 8, Qualify: 2, MaxSlots: 4,
		Tiers: []TierExplanation{{Pool: "gold", Preferred: true, Fits: 1, Qualify: 1}, {Pool: "main", Fits: 7, Qualify: 1}, {Pool: "more"}},
		Breakdown: map[string]int{
			"service": 1, "service_version": 2, "pool": 1, "source_language": 1, "target_language": 1, "language_pair": 1, "labels": 4, "features": 2,
			"slots": 1, "draining": 1, "silent": 2, "quarantined": 1, "full": 1, "excluded": 1,
		},
		Nodes: []NodeExplanation{
			{Node: "good", Fits: true, Tier: 1, Pools: []string{"main", "more"}, Max: 4},
			{Node: "gold", Fits: true, Tier: 0, Pools: []string{"main", "more", "gold"}, Max: 4},
		},
	}
	if diff := cmp.Diff(summary, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A node with too few slots in all does not fit, even if its profile does.
func TestExplainTooManySlots(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(3, 1, 3)
	e := Explain(nodes, nil, "tts", nothing, &Query{Slots: 99})
	if e.Fits != 0 || e.Qualify != 0 || e.Tiers[0].Fits != 0 || e.MaxSlots != 3 || e.Breakdown["slots"] != 3 || e.Nodes[0].Fits || e.Nodes[0].Tier != -1 {
		t.Errorf("got %+v", e)
	}
	if e = Explain(nodes, nil, "tts", nothing, &Query{Slots: 3}); e.Fits != 3 || e.MaxSlots != 3 {
		t.Errorf("got %+v", e)
	}
}

// The explanation of a job that names no pool states where its pools come from.
func TestExplainWhyPools(t *testing.T) {
	t.Parallel()
	cfg := &Config{Enabled: true, Pools: Pools{{ID: "eu", SourceLanguages: []string{"zh"}, TargetLanguages: []string{"de"}}, {ID: "trial"}}}
	n := NewNode(Compile(&freeslot.Node{ID: "n", MaxConcurrency: 1, Services: []freeslot.Service{{Name: "tts"}}, Pools: []string{"trial"}}), 0)
	for want, r := range map[string]freeslot.Requirement{
		"is in pool trial, expected pool eu, which covers zh>de":                  {SourceLanguage: "zh", TargetLanguage: "de"},
		"is in pool trial, expected pool eu, which covers the source language zh": {SourceLanguage: "zh"},
		"is in pool trial, expected pool eu, which covers the target language de": {TargetLanguage: "de"},
		"is in pool trial, expected pool eu":                                      {Pool: "eu", SourceLanguage: "zh"},
	} {
		if got := Explain([]*Node{n}, cfg, "tts", &r, &Query{}).Nodes[0].Detail; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestExplainUnreachable(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(2, 2, 1)
	e := Explain(nodes, nil, "tts", nothing, &Query{Skip: CellMask(0).With(1)})
	if got := e.Nodes[1]; got.Reason != ReasonUnreachable || got.Detail != "its cell 1 does not answer" {
		t.Errorf("got %+v", got)
	}
}

func TestReasonsAreAllListed(t *testing.T) {
	t.Parallel()
	seen := map[Reason]bool{}
	for _, why := range Reasons() {
		if seen[why] || why == "" {
			t.Errorf("%q is listed twice, or empty", why)
		}
		seen[why] = true
	}
}
