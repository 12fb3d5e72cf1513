package selection

import (
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// A definition is complete: a class built from it has the same candidates.
func TestDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, _ := genFleet(t)
		cfg, r := genConfig(t), genRequirement(t)
		c := NewClass(nodes, cfg, "tts", r)
		if want := class.ID("tts", r); c.ID() != want {
			t.Fatalf("the id is %s, expected %s", c.ID(), want)
		}
		var read definition
		if err := freeslot.DecodeStrict("definition", []byte(c.Definition()), &read); err != nil {
			t.Fatalf("%s: %v; want no error", c.Definition(), err)
		}
		again := NewClass(nodes, cfg, read.Service, &read.Requirement)
		if again.ID() != c.ID() || again.Definition() != c.Definition() {
			t.Fatalf("%s gives %s", c.Definition(), again.Definition())
		}
		for _, n := range nodes {
			if again.Has(n) != c.Has(n) {
				t.Fatalf("%s: %s fits once only", c.Definition(), n.ID())
			}
		}
	})
}

func TestDefinitionForm(t *testing.T) {
	t.Parallel()
	r := &freeslot.Requirement{Pool: "p"}
	identity := NewIdentity("tts", r)
	r.Pool = "q" // nothing of it is kept
	class := identity.NewClass(nil, nil, &Config{Version: 7})
	if want := `{"service":"tts","requirement":{"pool":"p"}}`; class.Definition() != want {
		t.Errorf("got %s, expected %s", class.Definition(), want)
	}
	if class.ConfigVersion() != 7 || ttsClass(nil).ConfigVersion() != 0 {
		t.Errorf("versions %d and %d, expected 7 and 0", class.ConfigVersion(), ttsClass(nil).ConfigVersion())
	}
	if want := `{"service":"tts"}`; ttsClass(nil).Definition() != want {
		t.Errorf("got %s, expected %s", ttsClass(nil).Definition(), want)
	}
}

// Has goes by the profile, not by the lists.
func TestHas(t *testing.T) {
	t.Parallel()
	node := func(id, version string) *Node {
		return NewNode(Compile(&freeslot.Node{ID: id, MaxConcurrency: 1, Services: []freeslot.Service{{Name: "asr", Version: version}}}), 0)
	}
	cfg := enabled(Pools{{ID: "p", Members: []string{"first", "late"}}})
	r := &freeslot.Requirement{PreferredPool: "p", Services: []string{"asr@>=2 <3"}}
	first, second, late, old := node("first", "2.1"), node("second", "2.2"), node("late", "2.3"), node("old", "1.9")
	class := NewClass([]*Node{first, second, old}, cfg, "asr", r)
	first.SetDraining(true)
	for n, want := range map[*Node]bool{first: true, second: true, late: true, old: false} {
		if class.Has(n) != want {
			t.Errorf("Has(%s) is %t", n.ID(), !want)
		}
	}
	old.SetProfile(node("old", "2.0").Profile())
	if !class.Has(old) || class.Fits() != 2 {
		t.Error("the new profile does not count")
	}
	var all sync.WaitGroup
	for range 4 { // many versions at once, for the race detector
		all.Go(func() {
			for range 100 {
				class.Has(first)
				class.Has(second)
				class.Has(late)
			}
		})
	}
	all.Wait()
}

// Every waiting job asks for the names and the fit.
func TestHasDoesNotAllocate(t *testing.T) {
	n := NewNode(Compile(&freeslot.Node{ID: "n", MaxConcurrency: 1, Services: []freeslot.Service{{Name: "tts", Version: "1.4"}}}), 0)
	class := NewClass([]*Node{n}, nil, "tts", nothing)
	if !class.Has(n) {
		t.Fatal("the node does not fit")
	}
	if n := testing.AllocsPerRun(100, func() {
		class.ID()
		class.Definition()
		class.ConfigVersion()
		class.Has(n)
	}); n != 0 {
		t.Errorf("%v allocations, expected 0", n)
	}
}

func BenchmarkHas(b *testing.B) {
	nodes := make([]*Node, 10000)
	for i := range nodes {
		nodes[i] = NewNode(Compile(&freeslot.Node{
			ID: strconv.Itoa(i), MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts", Version: "1." + strconv.Itoa(i%10)}},
		}), 0)
	}
	for name, r := range map[string]*freeslot.Requirement{
		"any":   nothing,
		"range": {Services: []string{"tts@>=1.3"}},
	} {
		b.Run("requirement="+name, func(b *testing.B) {
			b.ReportAllocs()
			class := NewClass(nodes, nil, "tts", r)
			for i := 0; b.Loop(); i++ {
				class.Has(nodes[i%len(nodes)])
			}
		})
	}
}
