package selection

import (
	"slices"
	"unsafe"

	"github.com/freeslot/freeslot"
)

// listsKept is how many lists of one kind a Compiler keeps.
const listsKept = 4096

// Compiler compiles profiles that share their lists: what it has made of a list it uses
// again for each profile that has the very same one, which saves time and memory where
// a fleet is loaded. A nil one keeps nothing. It is not safe for concurrent use, and
// meant to be dropped after a number of profiles; NewCompiler makes one.
type Compiler struct {
	services map[listKey[freeslot.Service]]set
	pools    map[listKey[string]]set
	tags     map[listKey[string]]languages
}

// listKey is the identity of a list that does not change: where it begins and how long it
// is. As a key it keeps the list in memory, so that no other can begin there.
type listKey[T any] struct {
	first *T
	size  int
}

// NewCompiler makes a compiler that keeps nothing yet.
func NewCompiler() *Compiler {
	return &Compiler{
		services: make(map[listKey[freeslot.Service]]set),
		pools:    make(map[listKey[string]]set),
		tags:     make(map[listKey[string]]languages),
	}
}

// Compile prepares a valid profile. It keeps n, which must not change any more, nor must its lists.
func (c *Compiler) Compile(n *freeslot.Node) *Profile {
	if c == nil {
		c = new(Compiler)
	}
	return &Profile{
		node:     n,
		services: kept(c.services, n.Services, serviceSet),
		pools:    kept(c.pools, n.Pools, poolSet),
		source:   kept(c.tags, n.Languages.ASR, newLanguages),
		target:   kept(c.tags, n.Languages.TTS, newLanguages),
		semantic: kept(c.tags, n.Languages.Semantic, newLanguages),
	}
}

// kept is what compile makes of s, by known if it is there; nil keeps nothing.
func kept[T, C any](known map[listKey[T]]C, s []T, compile func([]T) C) C {
	key := listKey[T]{unsafe.SliceData(s), len(s)}
	if c, ok := known[key]; ok {
		return c
	}
	c := compile(s)
	if known != nil && len(known) < listsKept {
		known[key] = c
	}
	return c
}

func serviceSet(services []freeslot.Service) set {
	names := make([]string, len(services))
	for i, s := range services {
		names[i] = s.Name
	}
	return newSet(names)
}

func poolSet(pools []string) set { return newSet(slices.Clone(pools)) }
