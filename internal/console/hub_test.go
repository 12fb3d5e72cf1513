package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
)

// TestTopicsAreBounded: topics that pages name and give up again before they are computed leave
// nothing, however slowly topics are computed.
func TestTopicsAreBounded(t *testing.T) {
	t.Parallel()
	h, v := newHub(newMetrics(nil)), &slow{pending: map[string][]byte{}}
	kept := topicKey{name: "job:kept"}
	h.watch(v, kept, kinds[jobTopic], &identity.Principal{})
	for i := range 1000 {
		key := topicKey{name: fmt.Sprint("job:", i)}
		h.watch(v, key, kinds[jobTopic], &identity.Principal{})
		h.leave(v, key)
	}
	if len(h.topics) != 1 || h.topics[kept] == nil {
		t.Errorf("the hub has %d topics; want the one that has a viewer", len(h.topics))
	}
	if found, _ := h.next(true); found == nil || found.key != kept {
		t.Fatalf("the hub computes %+v; want the topic with a viewer", found)
	}
	h.leave(v, kept)
	if h.topics[kept] == nil {
		t.Error("a computed topic goes with its last viewer; want it kept until it is due, for viewers who come back")
	}
}

// TestLateViewers: who comes between two looks at the fleet gets the frame that others got. A frame
// of ten thousand nodes is not made for each.
func TestLateViewers(t *testing.T) {
	t.Parallel()
	h, key := newHub(newMetrics(nil)), topicKey{name: fleetTopic}
	h.sources = Sources{
		Now: time.Now, Look: func() Look { return Look{SilenceLimit: time.Second} },
		Nodes: func(see func(*Node)) { see(&Node{ID: "node-1", Max: 4}) },
	}
	viewers := make([]*slow, 3)
	for i := range viewers {
		viewers[i] = &slow{pending: map[string][]byte{}}
		h.watch(viewers[i], key, kinds[fleetTopic], &identity.Principal{})
		if i == 0 {
			h.tell(h.topics[key])
		}
	}
	first := viewers[0].pending[fleetTopic]
	for i, v := range viewers {
		if got := v.pending[fleetTopic]; len(got) == 0 || &got[0] != &first[0] {
			t.Errorf("viewer %d gets a frame of its own, of %d bytes; want the one of the first", i, len(got))
		}
	}
}
