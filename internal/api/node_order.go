package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
)

// orderRemoval lists first the nodes whose removal loses the least work.
const orderRemoval = "removal"

// The ranks of nodes in the order of removal. Within a rank the nodes that run the least come
// first.
const (
	rankLost    = iota // no agent speaks for the node
	rankDrained        // the node gets no jobs
	rankServes
)

const (
	// unknownRun stands for a time that the node's agent does not tell. It comes last.
	unknownRun = math.MaxInt64
	// maxRunMS is more than any node's jobs run. An agent wrote the number.
	maxRunMS = 1 << 50
)

// removal is a node's place in the order of removal, which goes by the fields one after the other.
type removal struct {
	rank, used int
	// ranMS is the time for which the node's jobs have run at atMS, added up.
	ranMS int64
	id    string
	// atMS is the time, by the store's clock, for which a listing counts. It is the same on all
	// pages, so that the order of nodes with different numbers of jobs stays.
	atMS int64
}

func (r *removal) compare(other *removal) int {
	return cmp.Or(
		cmp.Compare(r.rank, other.rank), cmp.Compare(r.used, other.used), cmp.Compare(r.ranMS, other.ranMS),
		cmp.Compare(r.id, other.id),
	)
}

// cursor returns the text of a place after which the next page begins.
func (r *removal) cursor() string {
	return fmt.Sprintf("%s:%d:%d:%d:%d:%s", orderRemoval, r.rank, r.used, r.ranMS, r.atMS, r.id)
}

// openRemoval reads a cursor; the zero value comes before all nodes.
func openRemoval(cursor string) (r removal, err error) {
	if cursor == "" {
		return r, nil
	}
	parts := strings.SplitN(cursor, ":", 6)
	if len(parts) != 6 || parts[0] != orderRemoval || freeslot.ValidateName("cursor", parts[5]) != nil {
		return r, badNodeCursor(orderRemoval)
	}
	var numbers [4]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[1+i], 10, 64); err != nil || numbers[i] < 0 {
			return r, badNodeCursor(orderRemoval)
		}
	}
	return removal{
		rank: int(numbers[0]), used: int(numbers[1]), ranMS: numbers[2], atMS: numbers[3], id: parts[5],
	}, nil
}

func badNodeCursor(order string) error {
	return freeslot.Invalid("cursor", "is not from a listing by order=%s", order)
}

// byID returns one page of the nodes that fit, and the cursor of the next one.
func (s *Server) byID(in *nodesInput, filter *nodeFilter, h *cache.Health) ([]*cell.NodeState, string, error) {
	if strings.HasPrefix(in.Cursor, orderRemoval+":") {
		return nil, "", badNodeCursor("id")
	}
	states := s.deps.Nodes.States()
	var nodes []*cell.NodeState
	for i := range states {
		n := &states[i]
		if n.Node.ID <= in.Cursor || !s.takes(filter, h, n) {
			continue
		}
		if len(nodes) == in.Limit {
			return nodes, nodes[in.Limit-1].Node.ID, nil
		}
		nodes = append(nodes, n)
	}
	return nodes, "", nil
}

// byRemoval does what byID does, in the order of removal.
func (s *Server) byRemoval(in *nodesInput, filter *nodeFilter, h *cache.Health) ([]*cell.NodeState, string, error) {
	after, err := openRemoval(in.Cursor)
	if err != nil {
		return nil, "", err
	}
	states := s.deps.Nodes.States()
	if in.Cursor == "" {
		for i := range states {
			after.atMS = max(after.atMS, states[i].LastHeartbeatMS)
		}
	}
	type placed struct {
		removal
		node *cell.NodeState
	}
	var found []placed
	for i := range states {
		n := &states[i]
		if !s.takes(filter, h, n) {
			continue
		}
		if at := s.removalOf(n, h, after.atMS); at.compare(&after) > 0 {
			found = append(found, placed{at, n})
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return a.compare(&b.removal) })
	next := ""
	if len(found) > in.Limit {
		found = found[:in.Limit]
		next = found[in.Limit-1].cursor()
	}
	nodes := make([]*cell.NodeState, len(found))
	for i := range found {
		nodes[i] = found[i].node
	}
	return nodes, next, nil
}

// removalOf returns the place of a node in a listing that counts for the time atMS.
func (s *Server) removalOf(n *cell.NodeState, h *cache.Health, atMS int64) removal {
	r := removal{rank: rankServes, used: n.Used, id: n.Node.ID, atMS: atMS}
	switch {
	case n.Epoch == cell.ImportEpoch || s.silent(h, n.Node.ID):
		r.rank = rankLost
	case shownStatus(n) != freeslot.StatusOnline:
		r.rank = rankDrained
	}
	if n.Used > 0 {
		r.ranMS = ranMS(n.Resources, atMS)
	}
	return r
}

// ranMS returns for how long the jobs of a node have run at the time atMS, added up. It goes by the
// jobs that the node had at its last figures.
func ranMS(resources json.RawMessage, atMS int64) int64 {
	var of struct {
		AtMS  int64  `json:"at_ms"`
		Jobs  int64  `json:"current_jobs"`
		RunMS *int64 `json:"run_ms"`
	}
	if json.Unmarshal(resources, &of) != nil || of.RunMS == nil || *of.RunMS < 0 || *of.RunMS > maxRunMS ||
		of.Jobs < 0 || of.Jobs > freeslot.MaxConcurrencyLimit || of.AtMS < 0 {
		return unknownRun
	}
	return *of.RunMS + of.Jobs*max(atMS-of.AtMS, 0)
}
