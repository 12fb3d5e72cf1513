package api

import (
	"bytes"
	"context"
	"net/http"

	"github.com/freeslot/freeslot/internal/identity"
)

// Ask answers a GET of a route for a caller inside this process, as the route answers others. It
// counts in no metric of requests.
func (s *Server) Ask(ctx context.Context, who *identity.Principal, target string) (status int, body []byte) {
	r, err := http.NewRequestWithContext(identity.As(ctx, who), http.MethodGet, target, nil)
	if err != nil {
		return http.StatusBadRequest, []byte(`{"code":"invalid_argument","message":"no such address"}`)
	}
	w := &kept{header: http.Header{}, status: http.StatusOK}
	s.inner.ServeHTTP(w, r)
	return w.status, w.body.Bytes()
}

// kept keeps an answer in memory.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }
