package tenant

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
)

type (
	listInput struct {
		Tenant string `query:"tenant" maxLength:"64" doc:"Only this tenant. Clients may only name their own; operators see all without it."`
	}
	listOutput struct{ Body TenantList }
)

// Routes registers GET /v1/tenants.
func (l *Lister) Routes(r *api.Router) {
	huma.Register(r, huma.Operation{
		OperationID: "list-tenants", Method: http.MethodGet, Path: "/v1/tenants", Tags: []string{"tenants"},
		Summary: "List tenants with their limits and what they use of them",
		Description: "Limits are those of the replica that answers. Running and waiting jobs are known of tenants with " +
			"such a limit. Rates are the sum of all replicas. Clients get a list of their own tenant alone.",
	}, func(ctx context.Context, in *listInput) (*listOutput, error) {
		ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
		defer cancel()
		list, err := l.of(ctx, api.Caller(ctx), in.Tenant)
		if err != nil {
			return nil, r.Refuse("tenants", err)
		}
		return &listOutput{Body: list}, nil
	})
	doc := r.OpenAPI()
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "tenants", Description: "What each tenant may use, and uses."})
}

func (l *Lister) of(ctx context.Context, p *api.Principal, tenant string) (TenantList, error) {
	if tenant != "" {
		if err := freeslot.ValidateName("tenant", tenant); err != nil {
			return TenantList{}, err
		}
	}
	switch {
	case p.AllTenants && tenant == "":
		return l.All(ctx)
	case p.AllTenants || tenant == "" || tenant == p.Tenant:
		if tenant == "" {
			tenant = p.Tenant
		}
		return l.One(ctx, tenant)
	default:
		return TenantList{}, &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "tenant",
			Message: "tenant is another's, which only operators may see",
		}
	}
}
