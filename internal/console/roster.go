package console

import (
	"encoding/json"
	"math"
	"time"

	"github.com/freeslot/freeslot"
)

// Node is a node as one look at the cache finds it.
type Node struct {
	ID        string
	Cell      int
	Used, Max int
	Status    freeslot.Status
	Silent    bool
	// Age is the time since the node's last sign of life; negative: there was none.
	Age time.Duration
	// Epoch and Profile are other ones after the node's agent or its profile has changed.
	Epoch   string
	Profile any
	// Resources is what the agent said last of the machine, and another pointer once it has said
	// more. It may be nil, and need not be valid JSON.
	Resources *string
}

// Look is what is known beside the nodes.
type Look struct {
	// Config is the version of the configuration that says which pools a node is in.
	Config uint64
	// SilenceLimit is the age from which on a node is silent.
	SilenceLimit time.Duration
	// Stale is how old the state of the least fresh cell is; 0 while all cells answer.
	Stale time.Duration
}

// nodeState is the state of a node in frames of the topic fleet. The values are part of the
// protocol.
type nodeState uint8

const (
	nodeGone nodeState = iota
	nodeOnline
	nodeDraining
	nodeDrained
	nodeSilent
)

const (
	// unknown is a share that is not known. Others are whole percents.
	unknown = math.MaxUint8
	// ageSteps is the number of codes of an age within which it doubles.
	ageSteps = 8
	// maxGone is the number of nodes that are remembered as gone. A viewer who has missed one that
	// is forgotten reads all nodes anew.
	maxGone = 4096
)

// figures is what changes often about a node.
type figures struct {
	state            nodeState
	cpu, memory, gpu uint8
	age              uint8
	used, max        uint16
}

// row is a place for a node. hub.mu guards it.
type row struct {
	id   string
	cell uint8
	figures
	epoch     string
	profile   any
	resources *string
	looked    uint64
	// named, changed and told number the last changes of the node that has the place, of anything
	// in the fields above, and of what the topic nodes tells of it. Invariant: named <= changed.
	named, changed, told uint64
}

// gone is a node that has left, by the change with that number.
type gone struct {
	id     string
	change uint64
}

// roster knows all nodes, and which of them changed after which change. hub.mu guards it. Its size
// follows the largest number of nodes that were there at a time.
type roster struct {
	rows []row
	byID map[string]int
	// order has the places in the order of the last look, and seen counts the nodes of the current
	// one. The cache shows nodes in the same order again, so that byID is rarely needed.
	order []int
	seen  int
	// free are the places of nodes that have left, the longest ago first.
	free []int
	// changes counts changes. Each has a number of its own, so that what changed can be told in
	// parts.
	changes uint64
	looks   uint64
	at      time.Time // of the last look
	Look
	// gone are the last nodes that have left, in order. forgot is the last change that is not there
	// any more.
	gone   []gone
	forgot uint64
	// part bounds a frame of the topic fleet, news one of the topic nodes, and remembered the gone
	// nodes.
	part, news, remembered int
}

func newRoster() *roster {
	return &roster{byID: make(map[string]int), part: fleetPart, news: maxNews, remembered: maxGone}
}

// look brings the roster up to date.
func (r *roster) look(now Look, nodes func(see func(n *Node))) {
	before := r.Config
	r.Look, r.at = now, time.Now()
	r.looks++
	r.seen = 0
	nodes(r.see)
	r.order = r.order[:r.seen]
	for i := range r.rows {
		switch w := &r.rows[i]; {
		case w.state == nodeGone:
		case w.looked != r.looks:
			r.lose(i)
		case r.Config != before: // each may be in other pools now
			w.told = r.next()
		}
	}
}

func (r *roster) next() uint64 {
	r.changes++
	return r.changes
}

func (r *roster) see(n *Node) {
	w := &r.rows[r.find(n)]
	w.looked = r.looks
	now := figures{
		state: stateOf(n), cpu: w.cpu, memory: w.memory, gpu: w.gpu, age: ageCode(n.Age, r.ageUnit()),
		used: clamp(n.Used), max: clamp(n.Max),
	}
	if n.Resources != w.resources {
		w.resources = n.Resources
		now.cpu, now.memory, now.gpu = shares(n.Resources)
	}
	if now != w.figures {
		w.figures, w.changed = now, r.next()
	}
	if n.Epoch != w.epoch || n.Profile != w.profile {
		w.epoch, w.profile, w.told = n.Epoch, n.Profile, r.next()
	}
}

// find returns the place of a node, which gets one if it has none.
func (r *roster) find(n *Node) int {
	if r.seen < len(r.order) {
		if i := r.order[r.seen]; r.rows[i].id == n.ID {
			r.seen++
			return i
		}
	}
	i, known := r.byID[n.ID]
	if !known {
		i = r.place()
		r.byID[n.ID] = i
		r.rows[i] = row{id: n.ID, cell: uint8(n.Cell), figures: figures{cpu: unknown, memory: unknown, gpu: unknown}}
		r.rows[i].named = r.next()
	}
	if r.seen < len(r.order) {
		r.order[r.seen] = i
	} else {
		r.order = append(r.order, i)
	}
	r.seen++
	return i
}

func (r *roster) place() int {
	if len(r.free) > 0 {
		i := r.free[0]
		r.free = r.free[1:]
		return i
	}
	r.rows = append(r.rows, row{})
	return len(r.rows) - 1
}

func (r *roster) lose(i int) {
	w := &r.rows[i]
	delete(r.byID, w.id)
	r.free = append(r.free, i)
	change := r.next()
	r.gone = append(r.gone, gone{w.id, change})
	if len(r.gone) > r.remembered {
		r.forgot = r.gone[0].change
		r.gone = r.gone[1:]
	}
	*w = row{changed: change}
}

// ageUnit is the age up to which a node counts as fresh, however often its agent gives a sign of
// life.
func (r *roster) ageUnit() time.Duration { return max(r.SilenceLimit/2, time.Millisecond) }

func stateOf(n *Node) nodeState {
	switch {
	case n.Silent:
		return nodeSilent
	case n.Status == freeslot.StatusDraining:
		return nodeDraining
	case n.Status == freeslot.StatusDrained:
		return nodeDrained
	default:
		return nodeOnline
	}
}

// ageCode returns 0 up to unit, unknown for no sign of life, and otherwise 1 and one more for each
// step. So a node that is well costs no updates.
func ageCode(age, unit time.Duration) uint8 {
	switch {
	case age < 0:
		return unknown
	case age <= unit:
		return 0
	}
	return uint8(min(1+ageSteps*math.Log2(float64(age)/float64(unit)), unknown-1))
}

func clamp(n int) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

// shares returns the use of processor, memory and graphics processor that an agent has reported.
func shares(resources *string) (cpu, memory, gpu uint8) {
	var said struct {
		CPU     any `json:"cpu_usage"`
		Memory  any `json:"memory_usage"`
		GPU     any `json:"gpu_usage"`
		Metrics struct {
			GPU struct {
				Utilization any `json:"utilization"`
			} `json:"gpu"`
		} `json:"metrics"`
	}
	if resources == nil || *resources == "" {
		return unknown, unknown, unknown
	}
	// What an agent writes may be anything. What could be read before an error counts.
	_ = json.Unmarshal([]byte(*resources), &said)
	if said.GPU == nil {
		said.GPU = said.Metrics.GPU.Utilization
	}
	return share(said.CPU), share(said.Memory), share(said.GPU)
}

func share(said any) uint8 {
	part, ok := said.(float64)
	if !ok {
		return unknown
	}
	return uint8(math.Round(100 * min(max(part, 0), 1)))
}
