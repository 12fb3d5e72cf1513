package api

import (
	"cmp"
	"context"
	"net"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// ReasonHeader says why a change is made, for the audit: a line of up to 256 bytes.
	ReasonHeader = "Freeslot-Reason"
	// AuditHeader holds the id of the change in the audit, or NotRecorded.
	AuditHeader = "Freeslot-Audit"
	// NotRecorded says that Redis could not record the change. The replica's log has it.
	NotRecorded = "not recorded"
)

// AuditedChange is one change, under a name of its own in the OpenAPI document.
type AuditedChange audit.Entry

// AuditPage is one page of the audit.
type AuditPage struct {
	Entries []AuditedChange `json:"entries" doc:"The newest first. The first page begins with the changes that have no outcome yet."`
	// The tag documents Cursor for readers of the API.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing, also after an empty page; absent at its end."`
}

type (
	auditInput struct {
		SinceMS int64  `query:"since_ms" minimum:"0" doc:"Changes that began at this time or later, in milliseconds since 1970."`
		UntilMS int64  `query:"until_ms" minimum:"0" doc:"Changes that began before this time."`
		Name    string `query:"name" maxLength:"256" doc:"The name of the caller's token."`
		Role    string `query:"role" maxLength:"64" doc:"The caller's role."`
		Tenant  string `query:"tenant" maxLength:"256" doc:"The caller's tenant."`
		Call    string `query:"call" maxLength:"128" doc:"The operation, such as drain-node; of schedctl itself import-nodes and apply-acl."`
		Target  string `query:"target" maxLength:"512" doc:"A part of the path of the change, such as /nodes/gpu-7."`
		Outcome string `query:"outcome" maxLength:"64" doc:"done, dry_run, unknown or the code of an error."`
		Cursor  string `query:"cursor" maxLength:"64" doc:"The cursor of the page before."`
		Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many entries, beside those without an outcome."`
	}
	auditOutput struct{ Body AuditPage }
)

func (s *Server) registerAudit(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tags: []string{"audit"},
		Summary: "List who changed what",
		Description: "Every change, except those that a client makes of its own jobs: about the last 20,000, and as " +
			"many of clients and tenant-operators.",
	}, handleBounded(s, "audit", func(ctx context.Context, in *auditInput) (*auditOutput, error) {
		entries, next, err := s.deps.Audit.Read(ctx, audit.Filter{
			SinceMS: in.SinceMS, UntilMS: in.UntilMS, Name: in.Name, Role: in.Role, Tenant: in.Tenant,
			Call: in.Call, Target: in.Target, Outcome: in.Outcome,
		}, in.Cursor, in.Limit)
		if err != nil {
			return nil, err
		}
		out := AuditPage{Entries: make([]AuditedChange, len(entries)), Cursor: next}
		for i := range entries {
			out.Entries[i] = AuditedChange(entries[i])
		}
		return &auditOutput{Body: out}, nil
	}))
}

// audit records a change before its operation runs, and its outcome after that. The operation adds
// what it knows by [audit.Of].
func (s *Server) audit(ctx huma.Context, next func(huma.Context)) {
	who, call := Caller(ctx.Context()), ctx.Operation().OperationID
	if s.deps.Audit == nil || !who.Audited(call) {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	reason := r.Header.Get(ReasonHeader)
	err := audit.CheckReason(ReasonHeader, reason)
	var change *audit.Change
	if err == nil {
		change, err = s.deps.Audit.Begin(r.Context(), &who.Principal, call, r.URL.Path, addressOf(r), reason)
	}
	if err != nil {
		writeError(w, body(coded(err)))
		return
	}
	if w.Header().Set(AuditHeader, change.ID()); change.Lost != nil {
		w.Header().Set(AuditHeader, NotRecorded)
	}
	code := freeslot.CodeInternal // if the operation panics
	defer func() { change.End(r.Context(), cmp.Or(string(code), audit.OutcomeDone)) }()
	next(huma.WithContext(ctx, audit.With(ctx.Context(), change)))
	code = wire.CodeOf(ctx.Status())
}

// addressOf returns the address that the request came from.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
