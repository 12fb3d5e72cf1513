package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
)

// Nodes is what the server needs from the node cache; *cache.Cache implements it.
type Nodes interface {
	Fleet
	// States returns all nodes, ordered by id. The slice belongs to the caller.
	States() []cell.NodeState
	// State returns a node of the cache; false if there is none.
	State(id string) (cell.NodeState, bool)
	// CheckedState compares the cached version with the store's first, and takes the store's state
	// if they differ. If that takes too long, it returns the cached state, and checked is false.
	CheckedState(ctx context.Context, id string) (state cell.NodeState, found, checked bool)
	// Health reports how old the cached state of each cell is.
	Health() cache.Health
}

// Links tells how nodes are connected; *cell.Set implements it.
type Links interface {
	// Links returns the links by node. It leaves out nodes that are not connected by a gateway, and
	// nodes about which it cannot ask.
	Links(ctx context.Context, nodes []string) map[string]cell.Link
}

// MaxNodePage is the largest number of nodes on one page.
const MaxNodePage = 1000

// NodeStatus is a node as this replica sees it.
type NodeStatus struct {
	freeslot.Node
	Status freeslot.Status `json:"status" doc:"Whether the node takes new jobs, as its agent said last."`
	// Silent is documented in its tag.
	Silent bool   `json:"silent,omitempty" doc:"Nothing was heard from the node's agent for longer than the limit: it gets no jobs. Absent means false. While the store does not answer it stays as it was."`
	Epoch  string `json:"epoch" doc:"The incarnation of the node's agent."`
	// Used and the rest are documented in their tags.
	Used            int             `json:"used" doc:"Slots in use."`
	Version         uint64          `json:"version" doc:"The revision of the node's last announced change."`
	RegisteredAtMS  int64           `json:"registered_at_ms" doc:"The store's clock, in milliseconds since 1970."`
	LastHeartbeatMS int64           `json:"last_heartbeat_ms" doc:"The store's clock, in milliseconds since 1970."`
	MemberOf        []string        `json:"member_of,omitempty" doc:"The pools that the node is in: those that it names, and those that list it or whose rule it satisfies."`
	Resources       json.RawMessage `json:"resources,omitempty" doc:"What the node's agent said last of the machine; most heartbeats say nothing of it. at_ms is when, by the store's clock, in milliseconds since 1970, and may be 10 minutes ago for an idle node whose figures stay the same; ages_ms is how long before that the figures of each collector were taken."`
	Connection      *NodeConnection `json:"connection,omitempty" doc:"By which replica the node's agent reaches the store. Absent for an agent that has a connection of its own, and where the store did not say it in time."`
	Checked         string          `json:"checked,omitempty" enum:"fresh,timeout" doc:"With checked=true: whether the store confirmed this state, or did not answer in time."`
	Freshness
}

// NodeConnection tells how an agent is connected by a replica.
type NodeConnection struct {
	Replica     string  `json:"replica" doc:"The replica by which the agent came in."`
	RoundTripMS float64 `json:"round_trip_ms,omitempty" doc:"Between replica and agent, as measured last. Absent until it was measured."`
	Version     string  `json:"version,omitempty" doc:"The agent's release."`
	Token       string  `json:"token" doc:"The name of the agent's token."`
}

// NodePage is one page of a listing.
type NodePage struct {
	Nodes  []NodeStatus `json:"nodes" doc:"In the order that was asked for."`
	Cursor string       `json:"cursor,omitempty" doc:"Continues the listing; absent at its end."`
	Freshness
}

type (
	nodesInput struct {
		Cursor      string `query:"cursor" maxLength:"160" doc:"The cursor of the page before."`
		Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most this many nodes."`
		Order       string `query:"order" enum:"id,removal" default:"id" doc:"removal lists first the nodes whose removal loses the least work: those without an agent, then those that get no jobs, then the others; among these by slots in use, then by how long their jobs have run. A node whose place changes meanwhile can be missing or come twice."`
		Connections bool   `query:"connections" default:"true" doc:"Ask the store by which replicas the nodes' agents reach it. Without that the listing asks no one."`
		NodeQuery
	}
	nodeInput struct {
		ID      string `path:"id" doc:"The node's id."`
		Checked bool   `query:"checked" doc:"Compare with the store first, for at most the configured time."`
	}
	nodesOutput struct{ Body NodePage }
	nodeOutput  struct{ Body NodeStatus }
)

func (s *Server) registerNodes(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-nodes", Method: http.MethodGet, Path: "/v1/nodes", Tags: []string{"nodes"},
		Summary: "List nodes", Description: "As the cache of this replica has them.",
	}, handleBounded(s, "nodes", s.listNodes))
	huma.Register(api, huma.Operation{
		OperationID: "get-node", Method: http.MethodGet, Path: "/v1/nodes/{id}", Tags: []string{"nodes"},
		Summary: "Read a node",
	}, handleBounded(s, "node", s.getNode))
}

func (s *Server) listNodes(ctx context.Context, in *nodesInput) (*nodesOutput, error) {
	filter, err := in.filter(s.deps.Nodes.Config())
	if err != nil {
		return nil, err
	}
	list := s.byID
	if in.Order == orderRemoval {
		list = s.byRemoval
	}
	health := s.deps.Nodes.Health()
	nodes, next, err := list(in, filter, &health)
	if err != nil {
		return nil, err
	}
	page := NodePage{Nodes: []NodeStatus{}, Cursor: next, Freshness: fleetFreshness(&health)}
	var connections map[string]*NodeConnection
	if in.Connections {
		connections = s.connections(ctx, nodes...)
	}
	for i, n := range nodes {
		page.Nodes = append(page.Nodes, s.nodeStatus(n))
		page.Nodes[i].Connection = connections[n.Node.ID]
		page.Nodes[i].Silent = s.silent(&health, n.Node.ID)
		page.Nodes[i].Freshness = freshness(&health, n.Node.ID)
	}
	return &nodesOutput{Body: page}, nil
}

func (s *Server) getNode(ctx context.Context, in *nodeInput) (*nodeOutput, error) {
	if err := freeslot.ValidateName("id", in.ID); err != nil {
		return nil, err
	}
	var state cell.NodeState
	var found, checked bool
	if in.Checked {
		state, found, checked = s.deps.Nodes.CheckedState(ctx, in.ID)
	} else {
		state, found = s.deps.Nodes.State(in.ID)
	}
	switch {
	case !found && in.Checked && !checked: // a node that this replica has not loaded yet may be there
		return nil, &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: time.Second,
			Message: "the store did not say in time whether there is a node " + in.ID,
		}
	case !found:
		return nil, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no node " + in.ID}
	}
	out := &nodeOutput{Body: s.nodeStatus(&state)}
	out.Body.Connection = s.connections(ctx, &state)[in.ID]
	health := s.deps.Nodes.Health()
	out.Body.Silent, out.Body.Freshness = s.silent(&health, in.ID), freshness(&health, in.ID)
	switch {
	case checked:
		out.Body.Checked, out.Body.Freshness = "fresh", Freshness{}
	case in.Checked:
		out.Body.Checked = "timeout"
	}
	return out, nil
}

// Node returns a node as the cache has it, without its connection; false if there is none. It asks
// no one.
func (s *Server) Node(id string) (NodeStatus, bool) {
	state, found := s.deps.Nodes.State(id)
	if !found {
		return NodeStatus{}, false
	}
	status, health := s.nodeStatus(&state), s.deps.Nodes.Health()
	status.Silent, status.Freshness = s.silent(&health, id), freshness(&health, id)
	return status, true
}

// connections asks the store, because no event tells about connections, and no choice needs them.
func (s *Server) connections(ctx context.Context, nodes ...*cell.NodeState) map[string]*NodeConnection {
	if s.deps.Links == nil || len(nodes) == 0 {
		return nil
	}
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		ids[i] = n.Node.ID
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.LinkTimeout)
	defer cancel()
	connections := make(map[string]*NodeConnection)
	for id, link := range s.deps.Links.Links(ctx, ids) {
		connections[id] = &NodeConnection{
			Replica: link.Replica, RoundTripMS: float64(link.RoundTrip.Microseconds()) / 1000, Version: link.Version,
			Token: link.Token,
		}
	}
	return connections
}

// silent reports whether choices leave the node out because it is silent.
func (s *Server) silent(h *cache.Health, id string) bool {
	return s.silentFor(h, id, s.deps.Nodes.SilenceLimit())
}

// silentFor reports whether nothing was heard from the node for longer than limit. While its cell
// does not answer, every node seems silent; then the state at the cell's last answer counts.
func (s *Server) silentFor(h *cache.Health, id string, limit time.Duration) bool {
	n, ok := s.deps.Nodes.Node(id)
	if !ok {
		return false
	}
	now := s.deps.Nodes.Now()
	if away(h).Has(n.Cell()) {
		now -= int64(h.Cells[n.Cell()].Age)
	}
	at, seen := n.SeenAt()
	return !seen || at < now-int64(limit)
}

func shownStatus(n *cell.NodeState) freeslot.Status { return cmp.Or(n.Status, freeslot.StatusOnline) }

func (s *Server) nodeStatus(n *cell.NodeState) NodeStatus {
	status := NodeStatus{
		Node: n.Node, Status: shownStatus(n), Epoch: n.Epoch, Used: n.Used, Version: n.Revision,
		RegisteredAtMS: n.RegisteredAtMS, LastHeartbeatMS: n.LastHeartbeatMS, Resources: n.Resources,
		MemberOf: s.deps.Nodes.Config().Members(&n.Node),
	}
	if status.Services == nil {
		status.Services = []freeslot.Service{}
	}
	return status
}
