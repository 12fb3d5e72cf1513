package pool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// MaxDiffNodes is the most nodes that a MemberChange names.
const MaxDiffNodes = 20

// Diff lists what changes from one configuration to another. Its lists and maps are never nil.
type Diff struct {
	// Settings lists the changed fields outside of the pools.
	Settings []FieldChange `json:"settings" doc:"Changed settings outside of the pools."`
	Added    []string      `json:"added" doc:"Pools that are new."`
	Removed  []string      `json:"removed" doc:"Pools that are no more."`
	Changed  []PoolChange  `json:"changed" doc:"Pools whose rules change."`
	// Reordered is true if the pools in both configurations change their order of preference.
	Reordered bool           `json:"reordered" doc:"Whether the pools that stay change their order of preference."`
	Members   []MemberChange `json:"members" doc:"Pools that nodes join or leave, by id."`
	Nodes     int            `json:"nodes" doc:"How many nodes join or leave a pool."`
}

// FieldChange is a field before and after the change. An absent value means that the field is not
// set.
type FieldChange struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// PoolChange is a pool whose rules change.
type PoolChange struct {
	ID     string        `json:"id"`
	Fields []FieldChange `json:"fields"`
}

// MemberChange lists the nodes that join or leave one pool.
type MemberChange struct {
	Pool    string   `json:"pool"`
	Join    int      `json:"join" doc:"How many nodes join."`
	Joining []string `json:"joining" doc:"Their ids, up to 20."`
	Leave   int      `json:"leave" doc:"How many nodes leave."`
	Leaving []string `json:"leaving" doc:"Their ids, up to 20."`
}

// Empty reports whether nothing changes.
func (d *Diff) Empty() bool {
	return len(d.Settings)+len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Members) == 0 && !d.Reordered
}

// Compare returns what the change from before to after means for nodes. Both must be valid. Members
// are named in the order of nodes. Cost: two membership tests a node.
func Compare(before, after *selection.Config, nodes []freeslot.Node) Diff {
	old, now := fieldsOf(before), fieldsOf(after)
	oldPools, newPools := poolsOf(before), poolsOf(after)
	delete(old, "pools")
	delete(now, "pools")
	d := Diff{
		Settings: changedFields(old, now), Added: []string{}, Removed: []string{}, Changed: []PoolChange{},
	}
	d.Members, d.Nodes = memberChanges(before, after, nodes)
	var staying, stayed []string
	for i := range before.Pools {
		id := before.Pools[i].ID
		if newPools[id] == nil {
			d.Removed = append(d.Removed, id)
		} else {
			stayed = append(stayed, id)
		}
	}
	for i := range after.Pools {
		id := after.Pools[i].ID
		if oldPools[id] == nil {
			d.Added = append(d.Added, id)
			continue
		}
		staying = append(staying, id)
		if fields := changedFields(oldPools[id], newPools[id]); len(fields) > 0 {
			d.Changed = append(d.Changed, PoolChange{ID: id, Fields: fields})
		}
	}
	d.Reordered = !slices.Equal(staying, stayed)
	return d
}

// fieldsOf returns the fields of v as JSON.
func fieldsOf(v any) map[string]json.RawMessage {
	if cfg, ok := v.(*selection.Config); ok {
		full := normal(cfg)
		if full.Paused.Empty() {
			full.Paused = nil
		}
		v = full
	}
	text, err := json.Marshal(v)
	fields := make(map[string]json.RawMessage)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic("pool: a valid configuration is no JSON object: " + err.Error())
	}
	return fields
}

func poolsOf(cfg *selection.Config) map[string]map[string]json.RawMessage {
	out := make(map[string]map[string]json.RawMessage, len(cfg.Pools))
	for i := range cfg.Pools {
		out[cfg.Pools[i].ID] = fieldsOf(&cfg.Pools[i])
	}
	return out
}

func changedFields(before, after map[string]json.RawMessage) []FieldChange {
	out := []FieldChange{}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(before[name], after[name]) {
			out = append(out, FieldChange{Field: name, Before: before[name], After: after[name]})
		}
	}
	return out
}

// memberChanges also returns how many nodes join or leave a pool.
func memberChanges(before, after *selection.Config, nodes []freeslot.Node) (out []MemberChange, moved int) {
	changes := make(map[string]*MemberChange)
	of := func(pool string) *MemberChange {
		c := changes[pool]
		if c == nil {
			c = &MemberChange{Pool: pool, Joining: []string{}, Leaving: []string{}}
			changes[pool] = c
		}
		return c
	}
	for i := range nodes {
		n := &nodes[i]
		was, is := before.Members(n), after.Members(n)
		slices.Sort(was)
		slices.Sort(is)
		if !slices.Equal(was, is) {
			moved++
		}
		for _, pool := range without(is, was) {
			c := of(pool)
			c.Join, c.Joining = c.Join+1, limited(c.Joining, n.ID)
		}
		for _, pool := range without(was, is) {
			c := of(pool)
			c.Leave, c.Leaving = c.Leave+1, limited(c.Leaving, n.ID)
		}
	}
	out = make([]MemberChange, 0, len(changes))
	for _, c := range changes {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b MemberChange) int { return cmp.Compare(a.Pool, b.Pool) })
	return out, moved
}

// without returns the elements of a that b does not have. Both are sorted.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); !ok {
			out = append(out, s)
		}
	}
	return out
}

func limited(ids []string, id string) []string {
	if len(ids) >= MaxDiffNodes {
		return ids
	}
	return append(ids, id)
}
