package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cell"
)

// NodeControl changes nodes for operators; *cell.Set implements it.
type NodeControl interface {
	Drain(ctx context.Context, node string) error
	Undrain(ctx context.Context, node string) error
	Remove(ctx context.Context, node string, epoch cell.Epoch) (jobs []string, err error)
}

// NodeChange is the outcome of a change of a node.
type NodeChange struct {
	ID     string `json:"node_id"`
	Status string `json:"status" enum:"drained,online,removed" doc:"What was asked for. A node that is online again may be draining all the same because its agent stops."`
	// Jobs is documented in its tag.
	Jobs []string `json:"jobs,omitempty" doc:"Of a node that was removed: the jobs that it had, which go to their next attempts."`
}

type (
	nodeChangeInput struct {
		ID string `path:"id" doc:"The node's id."`
	}
	removeNodeInput struct {
		ID    string `path:"id" doc:"The node's id."`
		Epoch string `query:"epoch" doc:"Only if the node has this epoch, as GET /v1/nodes/{id} has it: one that was registered anew has another."`
	}
	nodeChangeOutput struct{ Body NodeChange }
)

func (s *Server) registerNodeControl(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "drain-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/drain", Tags: []string{"nodes"},
		Summary: "Give a node no more jobs",
		Description: "What runs there goes on. It lasts until the node is undrained, also over a stop and start of its " +
			"agent.",
	}, s.changeNode("drained", s.deps.Control.Drain))
	huma.Register(api, huma.Operation{
		OperationID: "undrain-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/undrain", Tags: []string{"nodes"},
		Summary: "Give a drained node jobs again",
	}, s.changeNode("online", s.deps.Control.Undrain))
	huma.Register(api, huma.Operation{
		OperationID: "remove-node", Method: http.MethodDelete, Path: "/v1/nodes/{id}", Tags: []string{"nodes"},
		Summary: "Forget a node that has no agent",
		Description: "One that is silent, or was imported and no agent has come: jobs that it still has go to their next " +
			"attempts. An agent that comes back registers it again.",
	}, handleBounded(s, "node", s.removeNode))
}

func (s *Server) changeNode(
	status string, change func(context.Context, string) error,
) func(context.Context, *nodeChangeInput) (*nodeChangeOutput, error) {
	return handleBounded(s, "node", func(ctx context.Context, in *nodeChangeInput) (*nodeChangeOutput, error) {
		if err := freeslot.ValidateName("id", in.ID); err != nil {
			return nil, err
		}
		before, _ := s.deps.Nodes.State(in.ID)
		audit.Of(ctx).Note(string(before.Status), status)
		return &nodeChangeOutput{Body: NodeChange{ID: in.ID, Status: status}}, change(ctx, in.ID)
	})
}

func (s *Server) removeNode(ctx context.Context, in *removeNodeInput) (*nodeChangeOutput, error) {
	if err := freeslot.ValidateName("id", in.ID); err != nil {
		return nil, err
	}
	state, found := s.deps.Nodes.State(in.ID)
	if !found {
		return nil, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "id", Message: "there is no node " + in.ID}
	}
	if in.Epoch != "" && in.Epoch != string(state.Epoch) {
		return nil, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "epoch",
			Message: fmt.Sprintf("node %s was registered anew: it has epoch %s, expected %s", in.ID, state.Epoch, in.Epoch),
		}
	}
	health := s.deps.Nodes.Health()
	if state.Epoch != cell.ImportEpoch && !s.silent(&health, in.ID) {
		return nil, alive(in.ID)
	}
	jobs, err := s.deps.Control.Remove(ctx, in.ID, state.Epoch)
	audit.Of(ctx).Note(fmt.Sprintf("epoch %s", state.Epoch), fmt.Sprintf("%d jobs to their next attempts", len(jobs)))
	if errors.Is(err, cell.ErrSuperseded) { // the node's agent has just come
		err = alive(in.ID)
	}
	return &nodeChangeOutput{Body: NodeChange{ID: in.ID, Status: "removed", Jobs: jobs}}, err
}

func alive(id string) error {
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "id",
		Message: "the agent of node " + id + " is alive: stop it, which takes the node out, or drain the node",
	}
}
