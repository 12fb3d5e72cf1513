package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// benchEpoch is that of every made-up node.
const benchEpoch = "01JD5Y8G6W9V0M5T2C3Q4R7X8Z"

// benchResources is what a heartbeat says, of the usual length.
const benchResources = `{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`

// fleetStates is a fleet as Redis would have it, each node heard of just now.
func fleetStates(nodes int) []cell.NodeState {
	now := time.Now().UnixMilli()
	out := make([]cell.NodeState, nodes)
	for i := range out {
		out[i] = cell.NodeState{
			Node: benchNode(i, benchPools), Epoch: benchEpoch, Status: freeslot.StatusOnline, Used: i % 4,
			Revision: cell.Revision(i + 1), RegisteredAtMS: now, LastHeartbeatMS: now,
		}
	}
	return out
}

// benchConfig has the pools by their language pairs.
func benchConfig() *selection.Config {
	pools := make(selection.Pools, benchPools)
	for i := range pools {
		source, target := pair(i)
		pools[i] = selection.Pool{ID: poolID(i), SourceLanguages: []string{source}, TargetLanguages: []string{target}}
	}
	return &selection.Config{Enabled: true, Mode: selection.ModeTwoLevel, Pools: pools}
}

// memorySource is a Redis of one cell without a server: the fleet, and after it nothing but what is published.
type memorySource struct {
	states []cell.NodeState
	// revision is that of the last event that was published and is applied by now.
	revision atomic.Uint64
	// gate is taken by every comparison after the load, if it is set.
	gate atomic.Pointer[chan struct{}]
	// entered counts the comparisons that came to the gate.
	entered atomic.Int64
}

// Changes implements cache.Source.
func (s *memorySource) Changes(ctx context.Context, since cell.Revision, limit int) (cell.Changes, error) {
	loaded := cell.Revision(len(s.states))
	if gate := s.gate.Load(); gate != nil && since >= loaded {
		s.entered.Add(1)
		select {
		case <-*gate:
		case <-ctx.Done():
			return cell.Changes{}, ctx.Err()
		}
	}
	out := cell.Changes{Generation: "g", Revision: max(loaded, s.revision.Load()), NowMS: time.Now().UnixMilli()}
	out.Next = max(out.Revision, since)
	out.Revision = out.Next
	if since < loaded {
		end := min(int(since)+limit, len(s.states))
		out.Nodes = s.states[since:end]
		if end < len(s.states) {
			out.More, out.Next = true, cell.Revision(end)
		}
	}
	return out, nil
}

// Nodes implements cache.Source.
func (s *memorySource) Nodes(context.Context, []string) (cell.Changes, error) {
	return cell.Changes{NowMS: time.Now().UnixMilli()}, nil
}

// NodeRevision implements cache.Source.
func (*memorySource) NodeRevision(context.Context, string) (cell.Revision, error) { return 0, nil }

// History implements cache.Source.
func (*memorySource) History(context.Context) (string, error) { return "h", nil }

// HeartbeatLimit implements cache.Source.
func (*memorySource) HeartbeatLimit() time.Duration { return time.Hour }

// feedClient stands in for the connection of a subscriber: what is published is received at once.
type feedClient struct {
	rueidis.Client
	receiver chan func(rueidis.PubSubMessage)
}

// B implements rueidis.Client.
func (*feedClient) B() rueidis.Builder { return rueidis.Builder{} }

// Receive implements rueidis.Client.
func (f *feedClient) Receive(ctx context.Context, _ rueidis.Completed, deliver func(rueidis.PubSubMessage)) error {
	f.receiver <- deliver
	<-ctx.Done()
	return ctx.Err()
}

// fedCache is a cache whose events are made here. All else is the cache's own: what is published passes the
// subscriber's queue, and the loop that follows the cell decodes and applies it.
type fedCache struct {
	*cache.Cache
	source     *memorySource
	subscriber *events.Subscriber
	deliver    func(rueidis.PubSubMessage)
	next       cell.Revision
}

// feedRoom is how many messages may wait in the subscriber's queue, which drops what does not fit.
const feedRoom = 4096

// newFedCache makes and starts a cache with the states; the caller stops it.
func newFedCache(ctx context.Context, states []cell.NodeState) (*fedCache, error) {
	client := &feedClient{receiver: make(chan func(rueidis.PubSubMessage), 1)}
	f := &fedCache{source: &memorySource{states: states}, next: cell.Revision(len(states) + 1)}
	f.subscriber = events.NewSubscriber(client, "bench", false, zap.NewNop())
	f.Cache = cache.New(cache.Config{Selection: benchConfig(), RefreshSize: 1000, RefreshInterval: time.Hour},
		[]cache.Feed{{Source: f.source, Events: f.subscriber}}, zap.NewNop(), nil)
	if err := f.Start(ctx); err != nil {
		return nil, err
	}
	f.deliver = <-client.receiver
	return f, nil
}

// messages makes the next n events: one of each node after the other, in an order without a pattern.
func (f *fedCache) messages(n int, event func(i int) events.Event) []string {
	out := make([]string, n)
	var buf []byte
	for i := range out {
		e := event(i)
		e.Revision = f.next
		f.next++
		buf = e.Append(buf[:0])
		out[i] = string(buf)
	}
	return out
}

// apply publishes one message; false when the queue is full.
func (f *fedCache) apply(message string) bool {
	if len(f.subscriber.Messages()) >= feedRoom {
		return false
	}
	f.deliver(rueidis.PubSubMessage{Message: message})
	return true
}

// settle has the cache take the last event that was made for applied, so that the next one leaves no gap.
func (f *fedCache) settle(ctx context.Context) error {
	f.source.revision.Store(f.next - 1)
	return f.Sync(ctx)
}

// heartbeats are events as agents cause them.
func heartbeats(nodes int) func(i int) events.Event {
	return func(i int) events.Event {
		return events.Event{
			Kind: events.Heartbeat, AtMS: time.Now().UnixMilli(), Node: benchNodeID(i * 7919 % nodes), Epoch: benchEpoch,
			Status: freeslot.StatusOnline, MaxConcurrency: 64, Used: i % 4, Body: benchResources,
		}
	}
}
