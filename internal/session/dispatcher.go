package session

import (
	"context"
	"net/http"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
)

// Dispatcher places jobs; *dispatch.Dispatcher implements it. Every call must end in bounded time:
// a session waits for the calls under way before it ends. The context of a call ends when the
// handler is stopped, not when the client leaves: a job that was read is submitted.
type Dispatcher interface {
	Submit(
		ctx context.Context, reqs []dispatch.Request, sink dispatch.Sink,
		accepted func(i int, a dispatch.Accepted, err error),
	)
	Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
	Attach(ctx context.Context, tenant, jobID string, sink dispatch.Sink) (freeslot.JobStatus, error)
	Forget(sink dispatch.Sink)
}

// Authenticator tells who sent a request; *identity.Authenticator implements it.
type Authenticator interface {
	// Authenticate returns the caller. The error is a *freeslot.Error with code unauthenticated.
	Authenticate(r *http.Request) (identity.Principal, error)
	// Changed returns a channel that is closed when Holds may return something else.
	Changed() <-chan struct{}
	// Holds reports whether the caller is still known, with the same rights.
	Holds(who *identity.Principal) bool
}
