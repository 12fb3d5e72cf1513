package console

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/socket"
)

// collector gets the next frame of each topic of a snapshot.
type collector struct {
	mu     sync.Mutex // guards the fields that follow
	frames map[string]json.RawMessage
	want   int
	all    chan struct{} // closed when there is a frame of each topic
}

func (s *collector) put(topic string, frame []byte) socket.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.frames) == s.want || s.frames[topic] != nil {
		return socket.Dropped
	}
	if s.frames[topic] = asJSON(topic, frame); len(s.frames) == s.want {
		close(s.all)
	}
	return socket.Queued
}

func (*collector) waits(string) bool { return false }

// snapshot answers with a frame of each topic, for pages that have no WebSocket.
func (c *Console) snapshot(w http.ResponseWriter, r *http.Request) {
	who, err := c.caller(r)
	names := r.URL.Query()["topic"]
	if err == nil && (len(names) == 0 || len(names) > maxWanted) {
		err = freeslot.Invalid("topic", "is there %d times, expected 1 to %d", len(names), maxWanted)
	}
	if err == nil {
		err = c.enter(&who)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer c.leave(&who)
	s := &collector{frames: make(map[string]json.RawMessage), all: make(chan struct{})}
	distinct := make(map[string]bool)
	for _, name := range names {
		distinct[name] = true
	}
	s.want = len(distinct)
	for name := range distinct {
		key, k, err := parseTopic(name, &who)
		if err != nil {
			s.put(name, c.hub.refusal(name, err))
			continue
		}
		c.hub.watch(s, key, k, &who)
		defer c.hub.leave(s, key)
	}
	timer := time.NewTimer(snapshotTimeout)
	defer timer.Stop()
	select {
	case <-s.all:
	case <-timer.C:
	case <-c.stopping:
	case <-r.Context().Done():
	}
	writeJSON(w, struct {
		Frames []json.RawMessage `json:"frames"`
	}{s.sorted(c.hub, names)})
}

// sorted returns a frame of each topic, in the order of names. What came too late is unavailable.
func (s *collector) sorted(h *hub, names []string) []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]json.RawMessage, len(names))
	for i, name := range names {
		if all[i] = s.frames[name]; all[i] == nil {
			all[i] = h.refusal(name, &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "it was not known in time"})
		}
	}
	return all
}
