package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// Routes registers the routes of a feature by huma.Register, and completes the OpenAPI document
// where the Go types do not suffice.
type Routes func(r *Router)

// Router registers the routes of a feature. Its handlers also use Caller, Conflict
// and CallTimeout.
type Router struct {
	huma.API
	server *Server
}

// LimitBody sets the limit for bodies of requests to path or, if path ends in a slash, to the paths
// one part below it: field may have at most this many bytes. Other bodies may be as large as a job.
func (r *Router) LimitBody(path, field string, bytes int) {
	r.server.bodyLimits[path] = bodyLimit{int64(bytes + bodyOverhead), &freeslot.Error{
		Code: freeslot.CodePayloadTooLarge, Field: field, Message: field + " is larger than " + bytesText(int64(bytes)),
	}}
}

// Refuse turns the error of a call into the answer, and logs it if operators must know. A handler
// that fails returns it.
func (r *Router) Refuse(operation string, err error) error { return r.server.refuse(operation, err) }

// Draining returns a channel that is closed when the replica begins to stop: a waiting request then
// has to answer.
func (r *Router) Draining() <-chan struct{} { return r.server.draining }

// Submit submits a job in a span of this name, and answers with its status: 202, or 200 if the job
// has ended already.
func (r *Router) Submit(ctx context.Context, span, tenant string, job *freeslot.Job) (*JobAnswer, error) {
	return r.server.submitNow(ctx, span, dispatch.Request{Tenant: tenant, Job: job})
}
