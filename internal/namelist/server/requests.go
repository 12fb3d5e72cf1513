package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
)

const (
	requestsPath     = "/v1/list-requests"
	requestPath      = requestsPath + "/{request}"
	applicationsPath = "/v1/list-applications"
	applicationPath  = applicationsPath + "/{application}"
)

type (
	// OfRequest names a request. It is exported because huma ignores unexported parts of requests.
	OfRequest struct {
		Request string `path:"request" maxLength:"120" doc:"The id of the request."`
	}
	requestBodyInput struct {
		OfRequest
		RawBody []byte
	}
	requestsInput struct {
		Open bool `query:"open" doc:"Only the ones that can be decided."`
	}
	// OfApplication names an application.
	OfApplication struct {
		Application string `path:"application" doc:"The name of the application."`
	}
	applicationBodyInput struct {
		OfApplication
		RawBody []byte
	}
)

// ListRequests holds changes that wait for approval, and decided ones.
type ListRequests struct {
	Requests []namelist.ChangeRequest `json:"requests" doc:"The newest first. Of each tenant all open ones and the last 100 closed ones."`
}

// ApproveRequest approves a request.
type ApproveRequest struct {
	// The tags document Digest and the rest for readers of the API.
	Digest  string `json:"digest" doc:"The digest of the request as the caller has seen it."`
	Comment string `json:"comment,omitempty" doc:"Why; at most 256 bytes."`
}

// RejectRequest rejects a request, or withdraws the caller's own.
type RejectRequest struct {
	// The tag documents Comment for readers of the API.
	Comment string `json:"comment,omitempty" doc:"Why; at most 256 bytes."`
}

// ListApplications holds applications.
type ListApplications struct {
	Applications []namelist.Application `json:"applications" doc:"In the order of their names."`
}

// ApplicationUpdate registers an application, or changes it.
type ApplicationUpdate struct {
	// The tags document Tenant and the rest for readers of the API.
	Tenant   string   `json:"tenant,omitempty" doc:"Its owner's; fixed. Absent means the caller's."`
	Contact  string   `json:"contact,omitempty" doc:"Whom to ask about it; at most 256 bytes."`
	Tokens   []string `json:"tokens,omitempty" doc:"Names of the tokens with which it asks lists, at most 50."`
	Revision *int64   `json:"revision" doc:"The revision that the change was made from, 0 for a new application. Another one is a conflict."`
}

// GrantRequest grants something with a list.
type GrantRequest struct {
	// The tags document To and the rest for readers of the API.
	To  string         `json:"to" doc:"The name of an operator's token; of a tenant-operator's, with its tenant: acme/olga."`
	May []namelist.May `json:"may" doc:"edit, query and switch. They replace an earlier grant; none revokes it."`
}

// OwnRequest changes the owner of a list.
type OwnRequest struct {
	// The tag documents Application for readers of the API.
	Application string `json:"application" doc:"A registered application; empty for no owner."`
}

func (r *routes) registerRequests() {
	op := operation("lists")
	huma.Register(r, op("list-requests", http.MethodGet, requestsPath, "List changes that wait for approval", "And decided ones."), r.requests)
	huma.Register(r, op("get-request", http.MethodGet, requestPath, "Show a request", "With its change, until it is decided."), r.request)
	huma.Register(r, op("approve-request", http.MethodPost, requestPath+"/approve", "Approve a request", "Its change is made in the same step. The author of a request cannot approve it."), r.approveRequest)
	huma.Register(r, op("reject-request", http.MethodPost, requestPath+"/reject", "Reject a request", "Its author withdraws it so; others must be admins."), r.rejectRequest)
	huma.Register(r, op("list-applications", http.MethodGet, applicationsPath, "List the applications", "That ask and own lists."), r.applications)
	huma.Register(r, op("get-application", http.MethodGet, applicationPath, "Show an application", "Its owner and its tokens."), r.application)
	huma.Register(r, op("put-application", http.MethodPut, applicationPath, "Register an application, or change it", "A tenant-operator's waits for approval."), r.putApplication)
	huma.Register(r, op("delete-application", http.MethodDelete, applicationPath, "Forget an application", "Lists that it owns keep it as their owner."), r.deleteApplication)
	huma.Register(r, op("grant-list", http.MethodPut, listPath+"/grants", "Grant something with a list", "Or revoke it."), r.grant)
	huma.Register(r, op("own-list", http.MethodPut, listPath+"/owner", "Change the owner of a list", "Its tenant's operators then edit and query it."), r.setOwner)
	doc := r.OpenAPI()
	r.body(doc.Paths[requestPath+"/approve"].Post, reflect.TypeFor[ApproveRequest]())
	r.body(doc.Paths[requestPath+"/reject"].Post, reflect.TypeFor[RejectRequest]())
	r.body(doc.Paths[applicationPath].Put, reflect.TypeFor[ApplicationUpdate]())
	r.body(doc.Paths[listPath+"/grants"].Put, reflect.TypeFor[GrantRequest]())
	r.body(doc.Paths[listPath+"/owner"].Put, reflect.TypeFor[OwnRequest]())
	pending := &huma.Response{
		Description: "Nothing was changed: the change waits for approval.", Content: map[string]*huma.MediaType{
			"application/json": {Schema: doc.Components.Schemas.Schema(reflect.TypeFor[Pending](), true, "Pending")},
		},
	}
	for _, op := range []*huma.Operation{
		doc.Paths[listPath].Put, doc.Paths[listPath].Delete, doc.Paths[listPath+"/entries"].Post,
		doc.Paths[listPath+"/switch"].Post, doc.Paths[chainPath].Put, doc.Paths[chainPath].Delete,
		doc.Paths[chainPath+"/rollback"].Post, doc.Paths[chainPath+"/shadow"].Post, doc.Paths[applicationPath].Put,
	} {
		op.Responses["202"] = pending
	}
}

// tenantOf returns the tenant whose requests and applications the caller may see; empty means any.
func tenantOf(ctx context.Context) string {
	if who := api.Caller(ctx); !who.AllTenants {
		return who.Tenant
	}
	return ""
}

func (r *routes) requests(ctx context.Context, in *requestsInput) (*output[ListRequests], error) {
	return handle(ctx, r, "list requests", in, func(ctx context.Context, in *requestsInput) (out ListRequests, err error) {
		out.Requests = []namelist.ChangeRequest{}
		all, err := r.control.Requests(ctx, tenantOf(ctx))
		for _, one := range all {
			if !in.Open || one.State == namelist.RequestPending {
				out.Requests = append(out.Requests, one)
			}
		}
		return out, err
	})
}

func (r *routes) request(ctx context.Context, in *OfRequest) (*output[namelist.ChangeRequest], error) {
	return handle(ctx, r, "show the request", in, r.seeRequest)
}

// seeRequest reads a request that the caller may see.
func (r *routes) seeRequest(ctx context.Context, in *OfRequest) (namelist.ChangeRequest, error) {
	one, err := r.control.Request(ctx, in.Request)
	if own := tenantOf(ctx); err == nil && own != "" && one.Tenant != own {
		return namelist.ChangeRequest{}, namelist.NoRequest(in.Request)
	}
	return one, err
}

func (r *routes) approveRequest(ctx context.Context, in *requestBodyInput) (*output[namelist.ChangeRequest], error) {
	return handle(ctx, r, "approve the request", in,
		func(ctx context.Context, in *requestBodyInput) (out namelist.ChangeRequest, err error) {
			var q ApproveRequest
			if err := freeslot.DecodeStrict("approval", in.RawBody, &q); err != nil {
				return out, err
			}
			by := namelist.By{Author: api.Author(ctx, "", q.Comment), Note: q.Comment}
			if err := by.Validate(); err != nil {
				return out, err
			}
			one, err := r.control.Request(ctx, in.Request)
			if err != nil {
				return out, err
			}
			if q.Digest != one.Digest {
				return out, freeslot.Invalid("digest", "is %.80q, expected the digest of the request that you have seen", q.Digest)
			}
			if err := r.notBehind(ctx, &one, by.Author); err != nil {
				return out, err
			}
			err = r.approvals.approve(ctx, &one, &namelist.Decision{ID: one.ID, By: by.Author, Comment: q.Comment})
			if err != nil {
				return out, err
			}
			audit.Of(ctx).Note(one.Author+" asked", one.Summary)
			return r.control.Request(ctx, in.Request)
		})
}

// notBehind refuses an approval by the caller who gave the list its source, or who asked for the
// run. The request alone cannot tell: its author is the source.
func (r *routes) notBehind(ctx context.Context, one *namelist.ChangeRequest, name string) error {
	if one.Tenant != namelist.SourceTenant {
		return nil
	}
	a, err := r.sources.Get(ctx, one.Target)
	switch {
	case freeslot.CodeOf(err) == freeslot.CodeNotFound: // it has no source any more
		return nil
	case err != nil:
		return err
	case name == a.Author || name == a.AskedBy:
		return &freeslot.Error{
			Code: freeslot.CodePermissionDenied,
			Message: "you gave the source to list " + one.Target +
				", or asked for its run: another admin decides about what it brings",
		}
	}
	return nil
}

func (r *routes) rejectRequest(ctx context.Context, in *requestBodyInput) (*output[namelist.ChangeRequest], error) {
	return handle(ctx, r, "reject the request", in,
		func(ctx context.Context, in *requestBodyInput) (out namelist.ChangeRequest, err error) {
			var q RejectRequest
			if err := freeslot.DecodeStrict("rejection", in.RawBody, &q); err != nil {
				return out, err
			}
			if _, err := r.seeRequest(ctx, &in.OfRequest); err != nil {
				return out, err
			}
			by := namelist.By{Author: api.Author(ctx, "", q.Comment), Note: q.Comment}
			out, err = r.control.CloseRequest(ctx, in.Request, by, api.Caller(ctx).Role == identity.Admin)
			if err == nil {
				audit.Of(ctx).Note(out.Author+" asked: "+out.Summary, string(out.State))
			}
			return out, err
		})
}

// seen returns the applications that the caller may see.
func (r *routes) seen(ctx context.Context) (map[string]namelist.Application, error) {
	all, err := r.control.Applications(ctx)
	if own := tenantOf(ctx); own != "" {
		maps.DeleteFunc(all, func(_ string, a namelist.Application) bool { return a.Tenant != own })
	}
	return all, err
}

func (r *routes) applications(ctx context.Context, in *struct{}) (*output[ListApplications], error) {
	return handle(ctx, r, "list applications", in,
		func(ctx context.Context, _ *struct{}) (out ListApplications, err error) {
			all, err := r.seen(ctx)
			out.Applications = []namelist.Application{}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				out.Applications = append(out.Applications, all[name])
			}
			return out, err
		})
}

func (r *routes) application(ctx context.Context, in *OfApplication) (*output[namelist.Application], error) {
	return handle(ctx, r, "show the application", in,
		func(ctx context.Context, in *OfApplication) (namelist.Application, error) {
			all, err := r.seen(ctx)
			app, ok := all[in.Application]
			if err == nil && !ok {
				err = namelist.NoApplication(in.Application)
			}
			return app, err
		})
}

func (r *routes) putApplication(ctx context.Context, in *applicationBodyInput) (*output[namelist.Application], error) {
	return handle(ctx, r, "write the application", in,
		func(ctx context.Context, in *applicationBodyInput) (out namelist.Application, err error) {
			var q ApplicationUpdate
			if err := freeslot.DecodeStrict("application", in.RawBody, &q); err != nil {
				return out, err
			}
			if q.Revision == nil {
				return out, freeslot.Invalid(
					"revision", "is absent, expected the revision that the change was made from, 0 for a new one",
				)
			}
			return r.approvals.putApplication(ctx, namelist.Application{
				Name: in.Application, Tenant: q.Tenant, Contact: q.Contact, Tokens: q.Tokens, Revision: *q.Revision,
			})
		})
}

// putApplication writes an application, or asks for it.
func (a *approvals) putApplication(ctx context.Context, app namelist.Application) (namelist.Application, error) {
	who := api.Caller(ctx)
	if app.Tenant == "" {
		app.Tenant = who.Tenant
	}
	if err := app.Validate(); err != nil {
		return app, err
	}
	all, err := a.control.Applications(ctx)
	if err != nil {
		return app, err
	}
	is, there := all[app.Name]
	switch {
	case !who.AllTenants && app.Tenant != who.Tenant, there && is.Tenant != app.Tenant:
		return app, &freeslot.Error{Code: freeslot.CodePermissionDenied, Field: "tenant", Message: "application " + app.Name +
			" belongs to another tenant, which is fixed"}
	case who.Role == identity.TenantOperator && is.Revision != app.Revision:
		return app, &freeslot.Error{Code: freeslot.CodeConflict, Field: "revision", Message: fmt.Sprintf(
			"application %s is at revision %d, and the change was made from revision %d", app.Name, is.Revision, app.Revision)}
	case who.Role == identity.TenantOperator:
		r := asked(ctx, namelist.PutApplication, app.Name, namelist.Mark{Revision: is.Revision}, ByWhom{}.by(ctx),
			"register application "+app.Name)
		if there {
			r.Summary = "change application " + app.Name
		}
		return app, a.propose(ctx, r, app)
	}
	return a.control.PutApplication(ctx, app)
}

func (r *routes) deleteApplication(ctx context.Context, in *OfApplication) (*output[struct{}], error) {
	return handle(ctx, r, "delete the application", in, func(ctx context.Context, in *OfApplication) (struct{}, error) {
		all, err := r.seen(ctx)
		if _, ok := all[in.Application]; err == nil && !ok {
			err = namelist.NoApplication(in.Application)
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, r.control.DeleteApplication(ctx, in.Application)
	})
}

func joined(all []namelist.May) string {
	texts := make([]string, len(all))
	for i, may := range all {
		texts[i] = string(may)
	}
	return strings.Join(texts, ",")
}

func (r *routes) grant(ctx context.Context, in *bodyInput) (*output[NameList], error) {
	return handle(ctx, r, "grant the list", in, func(ctx context.Context, in *bodyInput) (out NameList, err error) {
		var q GrantRequest
		if err := freeslot.DecodeStrict("grant", in.RawBody, &q); err != nil {
			return out, err
		}
		h, err := r.control.Grant(ctx, in.List, q.To, q.May)
		if err == nil {
			audit.Of(ctx).Note("", q.To+" may "+cmp.Or(joined(q.May), "nothing"))
		}
		return listOf(&h), err
	})
}

func (r *routes) setOwner(ctx context.Context, in *bodyInput) (*output[NameList], error) {
	return handle(ctx, r, "change the owner of the list", in,
		func(ctx context.Context, in *bodyInput) (out NameList, err error) {
			var q OwnRequest
			if err := freeslot.DecodeStrict("owner", in.RawBody, &q); err != nil {
				return out, err
			}
			var owner namelist.ListOwner
			if q.Application != "" {
				if owner, err = r.approvals.ownerOf(ctx, q.Application); err != nil {
					return out, err
				}
			}
			audit.Of(ctx).Note("", "owner "+cmp.Or(owner.Application, "none"))
			h, err := r.control.Own(ctx, in.List, owner)
			return listOf(&h), err
		})
}
