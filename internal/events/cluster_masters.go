package events

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// errNoMasters is returned when no node of a cluster answers.
var errNoMasters = errors.New("no node of the cluster tells its masters")

const clusterSlotCount = 16384

// SlotRange is a range of hash slots, both ends included.
type SlotRange struct{ First, Last uint16 }

// Master is one master of a cluster. A master without slots is never listed.
type Master struct {
	// Addr is host:port.
	Addr  string
	Slots []SlotRange
}

func (m *Master) has(slot uint16) bool {
	for _, r := range m.Slots {
		if r.First <= slot && slot <= r.Last {
			return true
		}
	}
	return false
}

// ClusterMasters returns a function that asks every node that client knows for the masters, and
// joins the answers. While the nodes disagree, as in a failover, the result can have several
// masters for a slot: all that it may belong to. The function fails only if no node answers.
func ClusterMasters(client rueidis.Client) func(context.Context) ([]Master, error) {
	return func(ctx context.Context) ([]Master, error) {
		var (
			mu       sync.Mutex
			slots    = make(map[string][]SlotRange) // guarded by mu
			answered bool                           // guarded by mu
			failures []error                        // guarded by mu
			asked    sync.WaitGroup
		)
		for addr, node := range client.Nodes() {
			asked.Go(func() {
				seen, err := clusterSlots(ctx, addr, node)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failures = append(failures, fmt.Errorf("%s: %w", addr, err))
					return
				}
				answered = true
				for _, m := range seen {
					slots[m.Addr] = append(slots[m.Addr], m.Slots...)
				}
			})
		}
		asked.Wait()
		if !answered {
			return nil, errors.Join(append(failures, errNoMasters)...)
		}
		out := make([]Master, 0, len(slots))
		for addr, ranges := range slots {
			out = append(out, Master{Addr: addr, Slots: ranges})
		}
		return out, nil
	}
}

// clusterSlots returns one node's view, one entry for each range of slots.
func clusterSlots(ctx context.Context, addr string, node rueidis.Client) ([]Master, error) {
	ranges, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	out := make([]Master, 0, len(ranges))
	for _, r := range ranges {
		m, err := parseSlotRange(addr, r)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// parseSlotRange reads [first, last, [host, port, ...] of the master, replicas...]. A node that
// does not know its own host leaves it out. asked, the node's address, is used then.
func parseSlotRange(asked string, r rueidis.RedisMessage) (Master, error) {
	fail := func(err error) (Master, error) { return Master{}, fmt.Errorf("read CLUSTER SLOTS: %w", err) }
	entry, err := r.ToArray()
	if err != nil {
		return fail(err)
	}
	if len(entry) < 3 {
		return fail(fmt.Errorf("a range has %d parts, expected 3 or more", len(entry)))
	}
	first, errFirst := entry[0].AsInt64()
	last, errLast := entry[1].AsInt64()
	node, errNode := entry[2].ToArray()
	if err := errors.Join(errFirst, errLast, errNode); err != nil {
		return fail(err)
	}
	if first < 0 || last >= clusterSlotCount || len(node) < 2 {
		return fail(fmt.Errorf("range %d to %d of a node of %d parts", first, last, len(node)))
	}
	port, err := node[1].AsInt64()
	if err != nil {
		return fail(err)
	}
	host, err := node[0].ToString()
	if err != nil || host == "" || host == "?" {
		if host, _, err = net.SplitHostPort(asked); err != nil {
			return fail(err)
		}
	}
	return Master{
		Addr:  net.JoinHostPort(host, strconv.FormatInt(port, 10)),
		Slots: []SlotRange{{First: uint16(first), Last: uint16(last)}},
	}, nil
}
