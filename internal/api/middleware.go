package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// register adds the documented operations to mux.
func (s *Server) register(mux *http.ServeMux) huma.API {
	api := humago.New(mux, apiConfig(s.cfg.Version))
	api.UseMiddleware(s.authenticate, s.readBody, s.audit)
	s.registerJobs(api)
	s.registerNodes(api)
	if s.deps.Control != nil {
		s.registerNodeControl(api)
	}
	s.registerExplain(api)
	s.registerTokens(api)
	if s.deps.Queues != nil {
		s.registerQueues(api)
	}
	if s.deps.Audit != nil {
		s.registerAudit(api)
	}
	if s.deps.Findings != nil {
		s.registerFindings(api)
	}
	finish(api.OpenAPI())
	for _, register := range s.deps.Routes {
		register(&Router{API: api, server: s})
	}
	finishHealth(api.OpenAPI())
	return api
}

// handle makes a handler of f. If f fails, it refuses the request and logs the error under this
// operation.
func handle[I, O any](
	s *Server, operation string, f func(context.Context, *I) (*O, error),
) func(context.Context, *I) (*O, error) {
	return func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err != nil {
			return nil, s.refuse(operation, err)
		}
		return out, nil
	}
}

// handleBounded does what handle does, and bounds f by CallTimeout.
func handleBounded[I, O any](
	s *Server, operation string, f func(context.Context, *I) (*O, error),
) func(context.Context, *I) (*O, error) {
	return handle(s, operation, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, CallTimeout)
		defer cancel()
		return f(ctx, in)
	})
}

// authenticate refuses callers whose role or scope does not allow the call, and puts the others
// into the context of the operation.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	who, err := s.deps.Auth.Authenticate(r)
	listener.Tried(r, who.Tenant, err)
	if err != nil {
		s.sampled.Warn("http.unauthenticated", zap.String(logging.FieldAddress, r.RemoteAddr), zap.Error(err))
	}
	grant := identity.None
	if err == nil {
		call := ctx.Operation().OperationID
		if grant, err = who.May(call); err == nil {
			if scope, part := identity.ScopeOf(call); scope != "" {
				err = who.Reaches(scope, ctx.Param(part))
			}
		}
	}
	if err != nil {
		writeError(w, body(coded(err)))
		return
	}
	next(huma.WithValue(ctx, principalKey{}, &Principal{Principal: who, AllTenants: grant == identity.All}))
}

// boundBody comes first. Before net/http answers, it reads the rest of a body. A client that
// announces a body and sends none could delay the answer for ever, and keep the connection. So the
// body has a deadline, and the connection ends with the answer unless readBody has read the whole
// body. A request without a body has neither, such as every WebSocket's handshake. If a handshake
// has a body, hijacking lifts the deadline.
func (s *Server) boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// The writer of httptest has no deadlines; the server's has.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// readBody reads the body before the framework does, and lifts the deadline. If the deadline
// stayed, it would end a request that waits for its result: net/http takes a failed background read
// for a client that has gone.
func (s *Server) readBody(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		next(ctx)
		return
	}
	limit := s.limitOf(r)
	if r.ContentLength > limit.bytes {
		writeError(w, body(limit.refusal))
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit.bytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, body(limit.refusal))
		return
	case err != nil:
		writeError(
			w, body(&freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: "the body of the request could not be read"}),
		)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	w.Header().Del("Connection")
	r.Body = io.NopCloser(bytes.NewReader(data))
	next(ctx)
}

// bodyLimit holds the largest size of a body, and the refusal of a larger one.
type bodyLimit struct {
	bytes   int64
	refusal *freeslot.Error
}

func (s *Server) limitOf(r *http.Request) bodyLimit {
	for _, path := range []string{r.URL.Path, r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')+1]} {
		if own, ok := s.bodyLimits[path]; ok {
			return own
		}
	}
	limit := int64(s.cfg.MaxPayloadBytes + bodyOverhead)
	return bodyLimit{limit, &freeslot.Error{
		Code: freeslot.CodePayloadTooLarge, Field: "job",
		Message: "job is larger than " + bytesText(limit) + ", its payload may have " +
			bytesText(int64(s.cfg.MaxPayloadBytes)),
	}}
}

// strictRoutes answers if mux has no route: with not_found, or with the methods that the path has.
func strictRoutes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := &discarded{header: http.Header{}}
		fallback.ServeHTTP(answer, r)
		if allow := answer.header.Get("Allow"); answer.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			writeError(w, &Error{
				Code: freeslot.CodeInvalidArgument, Message: "there is no " + r.Method + " here, expected " + allow,
				status: http.StatusMethodNotAllowed,
			})
			return
		}
		writeError(
			w,
			body(&freeslot.Error{
				Code: freeslot.CodeNotFound, Message: "there is nothing at this path; /openapi.json lists what there is",
			}),
		)
	})
}

// discarded records the head of an answer that is not sent.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
