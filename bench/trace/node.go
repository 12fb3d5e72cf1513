package trace

import (
	"strconv"

	"github.com/freeslot/freeslot"
)

// LabelModel is the label that carries a node's GPU model.
const LabelModel = "gpu_model"

// Node is one line of the Alibaba GPU cluster trace's node list.
type Node struct {
	ID  string // sn
	GPU int
	// Model is empty where the list names none.
	Model string
}

// Slots is what the node offers: one slot a GPU. Nodes without a GPU offer none: they are for other
// work than inference, and Fleet leaves them out.
func (n *Node) Slots() int { return n.GPU }

// Profile is the node as its agent would state it: its slots, one service, and its GPU model as a
// label. It is valid only when the node has slots.
func (n *Node) Profile(service string) *freeslot.Node {
	p := &freeslot.Node{ID: n.ID, MaxConcurrency: n.Slots(), Services: []freeslot.Service{{Name: service}}}
	if n.Model != "" {
		p.Labels = map[string]string{LabelModel: n.Model}
	}
	return p
}

// Fleet is count nodes with the list's mix of sizes and models; 0 is as many as the list has with
// slots. A smaller fleet takes nodes at even distances in the list, which is sorted by kind. A
// larger one takes the whole list as often as it fits, and the rest at even distances; the copies
// of node-1 are node-1.1, node-1.2 and so on, names that the list has already left out. It returns
// nil when no node has slots.
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
