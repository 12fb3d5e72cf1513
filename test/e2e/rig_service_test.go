package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// payload is what the jobs of these tests carry.
type payload struct {
	// Index is the job's place in its plan; Slots is how many slots it takes.
	Index int `json:"index"`
	Slots int `json:"slots"`
}

// service is what a node runs its jobs with: a local HTTP service that counts for itself.
type service struct {
	*httptest.Server
	t *testing.T
	// gate holds the requests back until it is closed; nil lets them pass.
	gate <-chan struct{}

	mu sync.Mutex // guards what follows
	// inUse and most are slots, by the payloads of the running requests.
	inUse, most int
	seen        map[int]int   // requests by index
	grown       chan struct{} // closed and replaced when inUse grows
}

func newService(t *testing.T, gate <-chan struct{}) *service {
	t.Helper()
	s := &service{t: t, gate: gate, seen: make(map[int]int), grown: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost { // meant for another test's program, which had this port before
		http.NotFound(w, r)
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent has gone
	}
	var p payload
	if err := json.Unmarshal(data, &p); err != nil {
		s.t.Errorf("the service was given %q: %v", data, err)
		http.Error(w, "expected a job of the tests", http.StatusBadRequest)
		return
	}
	s.begin(p)
	defer s.end(p)
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"index":%d}`, p.Index)
}

func (s *service) begin(p payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse += p.Slots
	s.most = max(s.most, s.inUse)
	s.seen[p.Index]++
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *service) end(p payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse -= p.Slots
}

// state returns the slots in use and a channel that is closed when they grow.
func (s *service) state() (inUse int, grown <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse, s.grown
}

// awaitUse waits until requests that take n slots are under way.
func (s *service) awaitUse(n int) {
	s.t.Helper()
	for {
		inUse, grown := s.state()
		if inUse >= n {
			return
		}
		waittest.Receive(s.t, fmt.Sprintf("%d slots in use, beyond %d", n, inUse), grown)
	}
}
