package selection

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// genPaused is nil half of the time, so that half of the tests run without pauses.
func genPaused(t *rapid.T, classes ...string) *Paused {
	if rapid.Bool().Draw(t, "nothing paused") {
		return nil
	}
	p := &Paused{Pools: few(t, genPoolID, 5, "paused pools")}
	if rapid.IntRange(0, 4).Draw(t, "service paused") == 0 {
		p.Services = few(t, genService, 1, "paused services")
	}
	if rapid.IntRange(0, 4).Draw(t, "class paused") == 0 {
		p.Classes = append([]string{"0123456789abcdef"}, few(t, rapid.SampledFrom(append(classes, "fedcba9876543210")), 1, "paused classes")...)
	}
	return p
}

// slowPaused reports whether a node that fits gets no jobs, else the tier through which it gets
// them, as slowMatch numbers tiers.
func slowPaused(cfg *Config, n *freeslot.Node, service string, r *freeslot.Requirement) (paused bool, tier int) {
	is := func(list []string, name string) bool { return slices.Contains(list, name) }
	if cfg.Paused == nil {
		_, tier = slowTierOf(cfg, n, r)
		return false, tier
	}
	for _, entry := range append([]string{service}, r.Services...) {
		if name, _, _ := strings.Cut(entry, "@"); is(cfg.Paused.Services, name) {
			return true, 0
		}
	}
	if is(cfg.Paused.Classes, class.ID(service, r)) {
		return true, 0
	}
	// Take away the memberships in paused pools: a node that still fits is not paused, and a node in
	// no pool never is.
	in := slowPools(cfg, n)
	var open []string
	for _, id := range in {
		if !is(cfg.Paused.Pools, id) {
			open = append(open, id)
		}
	}
	var by []string // the pools that the class may use; nil is any
	switch {
	case r.Pool != "":
		by = []string{r.Pool}
	case cfg.Enabled && cfg.Mode != ModeFlat && r.SourceLanguage+r.TargetLanguage != "":
		for _, p := range cfg.Pools {
			if (r.SourceLanguage == "" || slowFind(p.SourceLanguages, r.SourceLanguage)) && (r.TargetLanguage == "" || slowFind(p.TargetLanguages, r.TargetLanguage)) {
				by = append(by, p.ID)
			}
		}
	}
	if by == nil {
		paused = len(in) > 0 && len(open) == 0
	} else {
		paused, tier = true, 0
		for _, id := range by {
			if is(open, id) {
				paused = false
				tier = slices.IndexFunc(cfg.Pools, func(p Pool) bool { return p.ID == id })
				break
			}
		}
		if r.Pool != "" {
			tier = 0
		}
	}
	if r.PreferredPool != "" && is(open, r.PreferredPool) {
		tier = -1
	}
	return paused, tier
}

func slowTierOf(cfg *Config, n *freeslot.Node, r *freeslot.Requirement) (Reason, int) {
	tier, _ := slowTier(cfg, n, r)
	return "", tier
}

func TestPausedPools(t *testing.T) {
	t.Parallel()
	node := func(id string, pools ...string) *Node {
		n := NewNode(Compile(&freeslot.Node{
			ID: id, MaxConcurrency: 2, Pools: pools, Services: services("tts", "asr"),
			Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"en"}},
		}), 0)
		n.Seen(1)
		return n
	}
	nodes := []*Node{node("one", "a"), node("two", "b"), node("both", "a", "b"), node("none")}
	cfg := func(p Paused) *Config {
		c := enabled(Pools{{ID: "a", SourceLanguages: []string{"de"}, Members: []string{"x"}, Labels: map[string]string{"no": "body"}}, {ID: "c"}})
		c.Paused = &p
		return c
	}
	cases := []struct {
		name   string
		paused Paused
		r      freeslot.Requirement
		taken  string // the nodes that take jobs of the class
		halted int
	}{
		{"nothing", Paused{}, freeslot.Requirement{}, "both none one two", 0},
		{"a pool that the job does not name", Paused{Pools: []string{"a"}}, freeslot.Requirement{}, "both none two", 1},
		{"the pool that it names", Paused{Pools: []string{"a"}}, freeslot.Requirement{Pool: "a"}, "", 2},
		{"another pool than it names", Paused{Pools: []string{"b"}}, freeslot.Requirement{Pool: "a"}, "both one", 0},
		{"the pool that covers its languages", Paused{Pools: []string{"a"}}, freeslot.Requirement{SourceLanguage: "de"}, "", 2},
		{"all of its pools", Paused{Pools: []string{"a", "b"}}, freeslot.Requirement{}, "none", 3},
		{"its service", Paused{Services: []string{"tts"}}, freeslot.Requirement{}, "", 4},
		{"a service that it needs besides", Paused{Services: []string{"asr"}}, freeslot.Requirement{Services: []string{"asr"}}, "", 4},
		{"a service that it does not need", Paused{Services: []string{"asr"}}, freeslot.Requirement{}, "both none one two", 0},
		{"its class", Paused{Classes: []string{class.ID("tts", &freeslot.Requirement{})}}, freeslot.Requirement{}, "", 4},
	}
	for _, c := range cases {
		class := NewClass(nodes, cfg(c.paused), "tts", &c.r)
		var taken []string
		for _, n := range class.Choose(make([]*Node, 0, 8), &Query{Want: 8, Now: 1}, NewSource(1)) {
			taken = append(taken, n.ID())
		}
		slices.Sort(taken)
		if got := strings.Join(taken, " "); got != c.taken || class.PausedNodes() != c.halted || class.Fits() != len(taken)+c.halted {
			t.Errorf("%s: %s take jobs, %d of %d paused; expected %s and %d", c.name, got, class.PausedNodes(), class.Fits(), c.taken, c.halted)
		}
		want := ""
		switch {
		case c.halted < len(nodes): // some nodes take jobs, or their pools pause them
		case len(c.paused.Services) > 0:
			want = "service " + c.paused.Services[0]
		case len(c.paused.Classes) > 0:
			want = "class " + c.paused.Classes[0]
		}
		if got := class.Paused(); got != want {
			t.Errorf("%s: paused by %q, expected %q", c.name, got, want)
		}
	}
}

// A node that is in a second pool of the class keeps its jobs, in the tier of that one.
func TestPausedPoolLeavesTheNextTier(t *testing.T) {
	t.Parallel()
	n := NewNode(Compile(&freeslot.Node{
		ID: "n", MaxConcurrency: 1, Services: services("tts"), Pools: []string{"first", "second", "liked"},
		Languages: freeslot.Languages{ASR: []string{"de"}},
	}), 0)
	n.Seen(1)
	cfg := enabled(Pools{{ID: "first", SourceLanguages: []string{"de"}}, {ID: "second", SourceLanguages: []string{"de"}}})
	cfg.Paused = &Paused{Pools: []string{"first", "liked"}}
	r := &freeslot.Requirement{SourceLanguage: "de", PreferredPool: "liked"}
	e := Explain([]*Node{n}, cfg, "tts", r, &Query{Now: 1})
	if got := e.Nodes[0]; got.Reason != "" || e.Tiers[got.Tier].Pool != "second" {
		t.Errorf("got %+v", got)
	}
	cfg.Paused = &Paused{Pools: []string{"second", "first"}}
	cfg = &Config{Enabled: true, Pools: cfg.Pools, Paused: cfg.Paused}
	e = Explain([]*Node{n}, cfg, "tts", r, &Query{Now: 1})
	if got := e.Nodes[0]; got.Reason != ReasonPaused || got.Detail != "pool first is paused" || !got.Fits {
		t.Errorf("got %+v", got)
	}
}

func TestPausedValidate(t *testing.T) {
	t.Parallel()
	cfg := &Config{Paused: &Paused{
		Pools: []string{"ok", "not ok"}, Services: []string{""}, Classes: []string{"0123456789abcdef", "0123456789ABCDEF", "01"},
	}}
	var fields []string
	for _, f := range cfg.Validate("config") {
		fields = append(fields, f.Field)
	}
	want := "config.paused.pools[1] config.paused.services[0] config.paused.classes[1] config.paused.classes[2]"
	if got := strings.Join(fields, " "); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	many := &Config{Paused: &Paused{Pools: make([]string, MaxPaused+1)}}
	if found := many.Validate(""); len(found) != 1 || found[0].Field != "paused.pools" {
		t.Errorf("got %v", found)
	}
}

func TestPausedText(t *testing.T) {
	t.Parallel()
	one := &Paused{Pools: []string{"b", "a", "b"}, Services: []string{}}
	two := &Paused{Pools: []string{"a", "b"}}
	if !one.Equal(two) || one.Text() != `{"pools":["a","b"]}` || one.Pools[0] != "b" {
		t.Errorf("got %s and %s", one.Text(), two.Text())
	}
	var none *Paused
	if !none.Empty() || none.Text() != "{}" || !none.Equal(&Paused{}) || one.Empty() {
		t.Error("nothing is something")
	}
}
