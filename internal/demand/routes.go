package demand

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
)

type (
	demandInput struct {
		Pool string `query:"pool" maxLength:"64" doc:"Only this pool."`
	}
	demandOutput struct{ Body DemandList }
)

// Routes registers GET /v1/demand.
func (w *Watch) Routes(r *api.Router) {
	huma.Register(r, huma.Operation{
		OperationID: "get-demand", Method: http.MethodGet, Path: "/v1/demand", Tags: []string{"demand"},
		Summary: "Show how many slots jobs need, by pool and service",
		Description: "All replicas answer nearly the same, for the whole system. A job counts for the pool that it asks " +
			"for or prefers; otherwise, of the pools that cover its languages, or of all pools without such ones, for the " +
			"first that has, or expects, a fitting node.",
	}, func(_ context.Context, in *demandInput) (*demandOutput, error) {
		list, err := w.of(in.Pool)
		if err != nil {
			return nil, r.Refuse("demand", err)
		}
		return &demandOutput{Body: list}, nil
	})
	doc := r.OpenAPI()
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "demand", Description: "How many slots jobs need, by pool and service."})
}

// of returns the demand of all pools, or of one.
func (w *Watch) of(pool string) (DemandList, error) {
	list := *w.Current()
	if pool == "" {
		return list, nil
	}
	if err := freeslot.ValidateName("pool", pool); err != nil {
		return DemandList{}, err
	}
	i := slices.IndexFunc(list.Pools, func(p PoolDemand) bool { return p.Pool == pool })
	if i < 0 {
		return DemandList{}, &freeslot.Error{
			Code: freeslot.CodeNotFound, Field: "pool",
			Message: "pool " + pool + " is not configured, and neither nodes nor jobs of late name it",
		}
	}
	list.Pools = list.Pools[i : i+1 : i+1]
	return list, nil
}
