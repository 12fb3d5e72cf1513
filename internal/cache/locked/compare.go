package locked

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Difference is one difference between two copies of the fleet.
type Difference struct {
	Node string `json:"node_id"`
	// Field is named as in JSON. It is "node" if only one of the copies has the node.
	Field string `json:"field"`
	// A and B are the values, as JSON or text; "absent" if there is no such node.
	A string `json:"a"`
	B string `json:"b"`
}

// String returns the difference as text for a log or a person.
func (d Difference) String() string {
	return fmt.Sprintf("node %s: %s is %s and %s", d.Node, d.Field, d.A, d.B)
}

const (
	fieldNode   = "node"
	fieldUsed   = "used"
	valueAbsent = "absent"
	valueThere  = "known"
)

// Compare returns the differences between two copies, ordered by node. It ignores versions and
// heartbeat times, because a [State] does not get them. It ignores the order of a list if that has
// no meaning. An empty list equals an absent one.
func Compare(a, b []cell.NodeState) []Difference {
	var out []Difference
	inB := make(map[string]*cell.NodeState, len(b))
	for i := range b {
		inB[b[i].Node.ID] = &b[i]
	}
	for i := range a {
		id := a[i].Node.ID
		out = append(out, compare(id, &a[i], inB[id])...)
		delete(inB, id)
	}
	for id, only := range inB {
		out = append(out, compare(id, nil, only)...)
	}
	slices.SortStableFunc(out, func(x, y Difference) int { return cmp.Compare(x.Node, y.Node) })
	return out
}

// compare accepts nil for a missing node.
func compare(id string, a, b *cell.NodeState) []Difference {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return []Difference{{Node: id, Field: fieldNode, A: valueAbsent, B: valueThere}}
	case b == nil:
		return []Difference{{Node: id, Field: fieldNode, A: valueThere, B: valueAbsent}}
	}
	return append(CompareProfiles(&a.Node, &b.Node), differing(id, figures(a), figures(b))...)
}

// CompareProfiles is Compare for two profiles. The differences have a's id.
func CompareProfiles(a, b *freeslot.Node) []Difference {
	return differing(a.ID, profile(a), profile(b))
}

// named is a field and its value. Equal meanings have an equal value.
type named struct{ name, value string }

func differing(id string, a, b []named) []Difference {
	var out []Difference
	for i := range a {
		if a[i].value != b[i].value {
			out = append(out, Difference{Node: id, Field: a[i].name, A: a[i].value, B: b[i].value})
		}
	}
	return out
}

func profile(n *freeslot.Node) []named {
	return []named{
		{"max_concurrency", strconv.Itoa(n.MaxConcurrency)},
		{"installed_services", text(ordered(n.Services, func(a, b freeslot.Service) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Endpoint, b.Endpoint))
		}))},
		{"capabilities", text(freeslot.Languages{
			ASR: ordered(n.Languages.ASR, cmp.Compare), TTS: ordered(n.Languages.TTS, cmp.Compare),
			Semantic: ordered(n.Languages.Semantic, cmp.Compare),
		})},
		{"pool_ids", text(ordered(n.Pools, cmp.Compare))},
		{"labels", text(orNil(n.Labels))},
		{"features_supported", text(orNil(n.Features))},
	}
}

func figures(s *cell.NodeState) []named {
	return []named{
		{"epoch", s.Epoch},
		{"status", string(normalStatus(s.Status))},
		{"registered_at_ms", strconv.FormatInt(s.RegisteredAtMS, 10)},
		{fieldUsed, strconv.Itoa(s.Used)},
		{"resources", string(s.Resources)},
	}
}

// ordered returns a sorted copy without repetitions; nil if it is empty.
func ordered[T comparable](list []T, order func(a, b T) int) []T {
	return slices.Compact(slices.SortedFunc(slices.Values(list), order))
}

func orNil[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return m
}

// text returns the JSON form of one of our own types, for which encoding cannot fail.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("locked: encode %T: %v", v, err))
	}
	return string(data)
}
