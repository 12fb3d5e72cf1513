package selection

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/freeslot/freeslot"
)

// TestCompilerAgreesWithCompile: profiles that share lists, parts of one list, equal
// lists and empty ones come out as if each were compiled alone.
func TestCompilerAgreesWithCompile(t *testing.T) {
	t.Parallel()
	names := []string{"a", "B_c", "de", "de", "pt-BR", "zh-Hant"}
	services := []freeslot.Service{{Name: "b", Version: "1"}, {Name: "a"}, {Name: "b", Version: "2"}}
	list := func() []string {
		from := rand.N(len(names) + 1)
		s := names[from : from+rand.N(len(names)-from+1)]
		switch rand.N(3) {
		case 0:
			return slices.Clone(s)
		case 1:
			return nil
		}
		return s
	}
	c := NewCompiler()
	for range 2000 {
		n := &freeslot.Node{
			ID: "n", MaxConcurrency: 1, Pools: list(), Services: services[rand.N(len(services)):],
			Languages: freeslot.Languages{ASR: list(), TTS: list(), Semantic: list()},
		}
		got, want := c.Compile(n), Compile(n)
		if got.Node() != n || !slices.Equal(got.services, want.services) || !slices.Equal(got.pools, want.pools) ||
			!slices.Equal(got.source.tags, want.source.tags) || !slices.Equal(got.target.tags, want.target.tags) ||
			!slices.Equal(got.semantic.tags, want.semantic.tags) {
			t.Fatalf("%+v: got %+v, want %+v", n, got, want)
		}
	}
}

// The sets of lists that are one are one; how many are kept is bounded.
func TestCompilerShares(t *testing.T) {
	t.Parallel()
	pools := []string{"b", "a"}
	c := NewCompiler()
	a, b := c.Compile(&freeslot.Node{Pools: pools}), c.Compile(&freeslot.Node{Pools: pools})
	if unsafe.SliceData(a.pools) != unsafe.SliceData(b.pools) {
		t.Error("equal sets are there twice")
	}
	if pools[0] != "b" {
		t.Error("a profile's list was changed")
	}
	for range listsKept + 10 {
		c.Compile(&freeslot.Node{Pools: []string{"a"}})
	}
	if len(c.pools) != listsKept {
		t.Errorf("%d lists are kept, expected %d", len(c.pools), listsKept)
	}
}
