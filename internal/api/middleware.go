package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/freeslot/freeslot"
)

// register puts the documented operations on mux.
func (s *Server) register(mux *http.ServeMux, features []Routes) huma.API {
	api := humago.New(mux, apiConfig(s.cfg.Version))
	api.UseMiddleware(s.authenticate, s.readBody)
	s.registerJobs(api)
	s.registerNodes(api)
	if s.control != nil {
		s.registerNodeControl(api)
	}
	s.registerExplain(api)
	s.registerQueues(api)
	finish(api.OpenAPI())
	for _, register := range features {
		register(&Router{API: api, server: s})
	}
	finishHealth(api.OpenAPI())
	return api
}

// authenticate puts the caller into the context of the operation.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	p, err := s.auth.principal(r)
	if err != nil {
		writeError(w, body(err))
		return
	}
	next(huma.WithValue(ctx, principalKey{}, p))
}

// boundBody comes first of all: whoever sends no body after having announced one
// would else hold the answer back for ever, since net/http reads what is left of
// a body before it answers, and the connection after that. So the body has a
// deadline, and the connection ends with the answer unless readBody has read it
// all. A request without a body has neither; that is every WebSocket's
// handshake, and hijacking lifts the deadline of one that does have a body.
func (s *Server) boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Not every writer has deadlines (httptest's has none); the server's has.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout))
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// readBody reads the body before the framework does, and lifts the deadline
// again: one that stays would end a request that waits for its result, since
// net/http takes a failed background read for a client that has gone.
func (s *Server) readBody(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		next(ctx)
		return
	}
	limit := s.limitOf(r)
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit.bytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, body(limit.refusal))
		return
	case err != nil:
		writeError(w, body(&freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: "the body of the request could not be read"}))
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	w.Header().Del("Connection")
	r.Body = io.NopCloser(bytes.NewReader(data))
	next(ctx)
}

// bodyLimit is the most that a body may have, and the refusal of one that has more.
type bodyLimit struct {
	bytes   int64
	refusal *freeslot.Error
}

func (s *Server) limitOf(r *http.Request) bodyLimit {
	if own, ok := s.bodyLimits[r.URL.Path]; ok {
		return own
	}
	limit := int64(s.cfg.MaxPayloadBytes + bodyOverhead)
	return bodyLimit{limit, &freeslot.Error{
		Code: freeslot.CodePayloadTooLarge, Field: "job",
		Message: "job is larger than " + bytesText(limit) + ", its payload may have " + bytesText(int64(s.cfg.MaxPayloadBytes)),
	}}
}

// strictRoutes answers for mux where it has no route: not_found, or which
// methods the path has.
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
		writeError(w, body(&freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is nothing at this path; /openapi.json lists what there is"}))
	})
}

// discarded takes an answer that is only looked at.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
