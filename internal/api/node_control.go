package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// NodeControl changes nodes on an operator's word; *cell.Set is it.
type NodeControl interface {
	Drain(ctx context.Context, node string) error
	Undrain(ctx context.Context, node string) error
	Remove(ctx context.Context, node string, epoch cell.Epoch) (jobs []string, err error)
}

// NodeChange is what became of a node.
type NodeChange struct {
	ID     string `json:"node_id"`
	Status string `json:"status" enum:"drained,online,removed" doc:"What was asked for. A node that is online again may be draining all the same because its agent stops."`
	// Jobs is documented for its reader in the tag.
	Jobs []string `json:"jobs,omitempty" doc:"Of a node that was removed: the jobs that it had, which go to their next attempts."`
}

type (
	nodeChangeInput struct {
		ID string `path:"id" doc:"The node's id."`
	}
	nodeChangeOutput struct{ Body NodeChange }
)

func (s *Server) registerNodeControl(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "drain-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/drain", Tags: []string{"nodes"},
		Summary:     "Give a node no more jobs",
		Description: "What runs there goes on. It lasts until the node is undrained, also over a stop and start of its agent. Operators only.",
	}, func(ctx context.Context, in *nodeChangeInput) (*nodeChangeOutput, error) {
		return s.changeNode(ctx, in.ID, "drained", s.control.Drain)
	})
	huma.Register(api, huma.Operation{
		OperationID: "undrain-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/undrain", Tags: []string{"nodes"},
		Summary: "Give a drained node jobs again", Description: "Operators only.",
	}, func(ctx context.Context, in *nodeChangeInput) (*nodeChangeOutput, error) {
		return s.changeNode(ctx, in.ID, "online", s.control.Undrain)
	})
	huma.Register(api, huma.Operation{
		OperationID: "remove-node", Method: http.MethodDelete, Path: "/v1/nodes/{id}", Tags: []string{"nodes"},
		Summary:     "Forget a node that has no agent",
		Description: "One that is silent, or was imported and no agent has come: jobs that it still has go to their next attempts. An agent that comes back registers it again. Operators only.",
	}, s.removeNode)
}

func (s *Server) changeNode(ctx context.Context, id, status string, change func(context.Context, string) error) (*nodeChangeOutput, error) {
	if err := OperatorsOnly(ctx, seeNodes); err != nil {
		return nil, s.refuse("node", err)
	}
	if err := freeslot.ValidateName("id", id); err != nil {
		return nil, s.refuse("node", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := change(ctx, id); err != nil {
		return nil, s.refuse("node", err)
	}
	return &nodeChangeOutput{Body: NodeChange{ID: id, Status: status}}, nil
}

func (s *Server) removeNode(ctx context.Context, in *nodeChangeInput) (*nodeChangeOutput, error) {
	var jobs []string
	out, err := s.changeNode(ctx, in.ID, "removed", func(ctx context.Context, id string) (err error) {
		state, found := s.nodes.State(id)
		if !found {
			return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "id", Message: "there is no node " + id}
		}
		health := s.nodes.Health()
		if state.Epoch != cell.ImportEpoch && !s.silent(&health, id) {
			return alive(id)
		}
		jobs, err = s.control.Remove(ctx, id, state.Epoch)
		if errors.Is(err, cell.ErrSuperseded) { // its agent has just come
			return alive(id)
		}
		return err
	})
	if out != nil {
		out.Body.Jobs = jobs
	}
	return out, err
}

func alive(id string) error {
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: "id",
		Message: "the agent of node " + id + " is alive: stop it, which takes the node out, or drain the node",
	}
}
