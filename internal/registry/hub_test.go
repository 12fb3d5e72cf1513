package registry

import (
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/events"
)

// A message that finds the queue full is dropped, and that is reported.
func TestHubOverflow(t *testing.T) {
	t.Parallel()
	h := newHub(t.Context(), new(conn), zap.NewNop())
	for range hubQueue {
		h.deliver(rueidis.PubSubMessage{Channel: "c"})
	}
	select {
	case <-h.lost:
		t.Fatal("lost before the queue was full")
	default:
	}
	h.deliver(rueidis.PubSubMessage{Channel: "c"})
	<-h.lost
}

// Channels go to the master of their slot, move with it, and a link without channels ends.
func TestHubAssign(t *testing.T) {
	t.Parallel()
	h := newHub(t.Context(), &conn{cluster: true}, zap.NewNop())
	link := func(addr string) *link {
		l := &link{h: h, addr: addr, poke: make(chan struct{}, 1), end: func() {}, add: map[string]int{}, drop: map[string]int{}}
		h.links[addr] = l
		return l
	}
	one, two := link("one"), link("two")
	h.want("a", 5)
	h.want("b", 5)
	h.want("c", 9)
	masters := func(a, b string) []events.Master {
		return []events.Master{{Addr: a, Slots: []events.SlotRange{{First: 0, Last: 7}}}, {Addr: b, Slots: []events.SlotRange{{First: 8, Last: 20}}}}
	}
	h.assign(masters("one", "two"))
	if len(one.add) != 2 || len(two.add) != 1 {
		t.Fatalf("one has %v, two %v", one.add, two.add)
	}
	two.onSubscription(rueidis.PubSubSubscription{Kind: "sunsubscribe", Channel: "c"})
	if h.channels["c"].link != nil {
		t.Error("c is still where its subscription was ended")
	}
	h.want("d", 5) // beside its slot's others at once
	if _, ok := one.add["d"]; !ok {
		t.Error("d is not with its slot")
	}
	h.assign([]events.Master{{Addr: "two", Slots: []events.SlotRange{{First: 0, Last: 20}}}})
	if len(two.add) != 4 || h.links["one"] != nil {
		t.Errorf("two has %v, links are %v", two.add, h.links)
	}
	h.leave("c")
	if _, ok := two.drop["c"]; !ok || len(two.add) != 3 {
		t.Errorf("c was left; add %v, drop %v", two.add, two.drop)
	}
}
