package trace

import (
	"io"
	"strconv"

	"github.com/freeslot/freeslot"
)

// The bounds of a node in the list.
const (
	maxMilli = 1 << 30
	maxGPU   = 1 << 10
)

// LabelModel is the label that carries a node's GPU model.
const LabelModel = "gpu_model"

// Node is one line of the Alibaba GPU cluster trace's node list.
type Node struct {
	ID        string // sn
	CPUMilli  int
	MemoryMiB int
	GPU       int
	// Model is empty where the list names none.
	Model string
}

// ReadNodes reads a node list: sn,cpu_milli,memory_mib,gpu,model. It refuses a list without nodes, and names
// that are none or come twice. The error is an *Error unless r failed.
func ReadNodes(r io.Reader) ([]Node, error) {
	t, err := newTable(r, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}
	var all []Node
	seen := make(map[string]bool)
	for {
		more, err := t.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		n, err := t.node()
		if err != nil {
			return nil, err
		}
		if seen[n.ID] {
			return nil, t.fail(0, "%s comes twice", n.ID)
		}
		seen[n.ID] = true
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, &Error{Line: 2, Message: "is missing, expected a node"}
	}
	return all, nil
}

func (t *table) node() (n Node, err error) {
	n.ID, n.Model = t.row[0], t.row[4]
	if err := freeslot.ValidateName("sn", n.ID); err != nil {
		return n, t.fail(0, "%v", err)
	}
	if n.Model != "" {
		if err := freeslot.ValidateName("model", n.Model); err != nil {
			return n, t.fail(4, "%v", err)
		}
	}
	if n.CPUMilli, err = t.number(1, 0, maxMilli); err != nil {
		return n, err
	}
	if n.MemoryMiB, err = t.number(2, 0, maxMilli); err != nil {
		return n, err
	}
	n.GPU, err = t.number(3, 0, maxGPU)
	return n, err
}

// OpenNodes is ReadNodes of a file.
func OpenNodes(path string) ([]Node, error) { return open(path, ReadNodes) }

// Slots is what the node offers: one slot a GPU. Nodes without a GPU offer none: they are for other work than
// inference, and Fleet leaves them out.
func (n *Node) Slots() int { return n.GPU }

// Profile is the node as its agent would state it: its slots, one service, and its GPU model as a label. It
// is valid only when the node has slots.
func (n *Node) Profile(service string) *freeslot.Node {
	p := &freeslot.Node{ID: n.ID, MaxConcurrency: n.Slots(), Services: []freeslot.Service{{Name: service}}}
	if n.Model != "" {
		p.Labels = map[string]string{LabelModel: n.Model}
	}
	return p
}

// Fleet is count nodes with the list's mix of sizes and models; 0 is as many as the list has with slots. A
// smaller fleet takes nodes at even distances in the list, which is sorted by kind. A larger one takes the
// whole list as often as it fits, and the rest at even distances; the copies of node-1 are node-1.1, node-1.2
// and so on, names that the list has already left out. It returns nil when no node has slots.
func Fleet(list []Node, count int) []Node {
	var able []Node
	for _, n := range list {
		if n.Slots() > 0 {
			able = append(able, n)
		}
	}
	if len(able) == 0 {
		return nil
	}
	if count <= 0 {
		count = len(able)
	}
	all := make([]Node, 0, count)
	taken := make(map[string]bool, count)
	for turn := 0; len(all) < count; turn++ {
		take := min(count-len(all), len(able))
		for i := range take {
			n := able[i*len(able)/take]
			id := n.ID
			for copied := turn; copied > 0 && taken[n.ID]; copied++ {
				n.ID = id + "." + strconv.Itoa(copied)
			}
			taken[n.ID] = true
			all = append(all, n)
		}
	}
	return all
}

// TotalSlots is the sum of the nodes' slots.
func TotalSlots(nodes []Node) int {
	sum := 0
	for i := range nodes {
		sum += nodes[i].Slots()
	}
	return sum
}
