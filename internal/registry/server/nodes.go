package server

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// nodeServicesPath is not below the registry's own services: the node services come from this
// replica's picture of the fleet, and no one has registered them.
const nodeServicesPath = adminPath + "/node-services"

// NodeService is a service that nodes offer to jobs.
type NodeService struct {
	// The tags document Name and the rest for readers of the API.
	Name   string         `json:"name"`
	Source string         `json:"source" doc:"Always node: it comes from the fleet, and is not in the registry."`
	Nodes  []NodeInstance `json:"nodes" doc:"In the order of their ids."`
}

// NodeInstance is a node that offers a service.
type NodeInstance struct {
	// The tags document Node and the rest for readers of the API.
	Node     string `json:"node"`
	Status   string `json:"status"`
	Version  string `json:"version,omitempty"`
	Endpoint string `json:"endpoint,omitempty" doc:"Where the service can be reached, if the node says so."`
	Used     int    `json:"used" doc:"Slots in use."`
	Slots    int    `json:"slots"`
	BeatMS   int64  `json:"beat_ms" doc:"The node's last heartbeat by the store's clock, in milliseconds since 1970."`
}

// NodeServiceList holds the services of all nodes.
type NodeServiceList struct {
	Services []NodeService `json:"services" doc:"In the order of their names."`
}

func (r *routes) registerNodes() {
	huma.Register(r, huma.Operation{
		OperationID: "list-node-services", Method: http.MethodGet, Path: nodeServicesPath, Tags: []string{"registry"},
		Summary:     "List the services that nodes offer",
		Description: "From this replica's picture of the fleet, without a call to the store.",
	}, r.nodeServices)
}

func (r *routes) nodeServices(context.Context, *struct{}) (*output[NodeServiceList], error) {
	return &output[NodeServiceList]{Body: NodeServiceList{Services: nodeServices(r.nodes())}}, nil
}

// nodeServices turns a list of nodes with services into a list of services with nodes.
func nodeServices(nodes []cell.NodeState) []NodeService {
	found := make(map[string]*NodeService)
	for i := range nodes {
		n := &nodes[i]
		for _, s := range n.Node.Services {
			of := found[s.Name]
			if of == nil {
				of = &NodeService{Name: s.Name, Source: "node"}
				found[s.Name] = of
			}
			of.Nodes = append(of.Nodes, NodeInstance{
				Node: n.Node.ID, Status: string(cmp.Or(n.Status, freeslot.StatusOnline)), Version: s.Version, Endpoint: s.Endpoint,
				Used: n.Used, Slots: n.Node.MaxConcurrency, BeatMS: n.LastHeartbeatMS,
			})
		}
	}
	out := []NodeService{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		slices.SortFunc(found[name].Nodes, func(a, b NodeInstance) int { return cmp.Compare(a.Node, b.Node) })
		out = append(out, *found[name])
	}
	return out
}
