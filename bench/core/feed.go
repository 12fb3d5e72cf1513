package main

import (
	"context"
	"runtime"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// benchEpoch is the epoch of every made-up node.
	benchEpoch = "01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	// benchResources is what a heartbeat carries, of the usual length.
	benchResources = `{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`
	// feedStep is the pace of events: as many as are due are applied, then the feed sleeps.
	feedStep = 500 * time.Microsecond
	// feedRoom is how many messages may wait in the subscriber's queue, which drops what does not
	// fit.
	feedRoom = 4096
)

// memorySource is a Redis of one cell without a server: the fleet, and after it nothing but what is
// published.
type memorySource struct{ states []cell.NodeState }

// Changes implements cache.Source.
func (s *memorySource) Changes(_ context.Context, since cell.Revision, limit int) (cell.Changes, error) {
	loaded := cell.Revision(len(s.states))
	out := cell.Changes{Generation: "g", Revision: max(loaded, since), NowMS: time.Now().UnixMilli()}
	out.Next = out.Revision
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
func (*memorySource) Nodes(context.Context, []string) (cell.Changes, error) {
	return cell.Changes{NowMS: time.Now().UnixMilli()}, nil
}

// NodeRevision implements cache.Source.
func (*memorySource) NodeRevision(context.Context, string) (cell.Revision, error) { return 0, nil }

// Heard implements cache.Source.
func (*memorySource) Heard(context.Context, int64, int, cell.Quiet) (cell.Heard, error) {
	return cell.Heard{}, nil
}

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

// fedCache is a cache whose events are made here. All else is the cache's own: what is published
// passes the subscriber's queue, and the loop that follows the cell decodes and applies it.
type fedCache struct {
	*cache.Cache
	subscriber *events.Subscriber
	deliver    func(rueidis.PubSubMessage)
	nodes      int
	next       cell.Revision
}

// Choose implements chooser.
func (f *fedCache) Choose(
	dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source,
) []*selection.Node {
	return f.Class(service, r).Choose(dst, q, rnd)
}

// newFedCache makes and starts a cache of a fleet, each node heard of just now. The caller stops
// it.
func newFedCache(ctx context.Context, nodes int) *fedCache {
	now := time.Now().UnixMilli()
	states := make([]cell.NodeState, nodes)
	for i := range states {
		states[i] = cell.NodeState{
			Node: benchNode(i), Epoch: benchEpoch, Status: freeslot.StatusOnline, Used: i % 4,
			Revision: cell.Revision(i + 1), RegisteredAtMS: now, LastHeartbeatMS: now,
		}
	}
	pools := make(selection.Pools, benchPools)
	for i := range pools {
		source, target := pair(i)
		pools[i] = selection.Pool{ID: poolID(i), SourceLanguages: []string{source}, TargetLanguages: []string{target}}
	}
	config := &selection.Config{Enabled: true, Mode: selection.ModeTwoLevel, Pools: pools}
	client := &feedClient{receiver: make(chan func(rueidis.PubSubMessage), 1)}
	f := &fedCache{nodes: nodes, next: cell.Revision(nodes + 1)}
	f.subscriber = events.NewSubscriber(client, "bench", false, zap.NewNop())
	f.Cache = cache.New(cache.Config{Selection: config, RefreshSize: 1000, RefreshInterval: time.Hour},
		[]cache.Feed{{Source: &memorySource{states}, Events: f.subscriber}}, zap.NewNop(), nil)
	tool.Check(f.Start(ctx))
	f.deliver = <-client.receiver
	return f
}

// heartbeats makes the next n events: heartbeats of one node after the other, in an order without a
// pattern.
func (f *fedCache) heartbeats(n int) []string {
	out := make([]string, n)
	for i := range out {
		e := events.Event{
			Kind: events.Heartbeat, AtMS: time.Now().UnixMilli(), Node: benchNodeID(i * 7919 % f.nodes), Epoch: benchEpoch,
			Status: freeslot.StatusOnline, MaxConcurrency: 64, Used: i % 4, Body: benchResources, Revision: f.next + cell.Revision(i),
		}
		out[i] = string(e.Append(nil))
	}
	return out
}

// feed publishes messages at a rate, in small steps, until the window is over; it returns how many
// a second it applied. The events after these must be made anew: revisions have no gaps.
func (f *fedCache) feed(ctx context.Context, messages []string, rate int, window time.Duration) (float64, error) {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return 0, err
	}
	defer pace.Close()
	begin, done := time.Now(), 0
	for elapsed := time.Duration(0); elapsed < window; elapsed = time.Since(begin) {
		due := min(int(elapsed.Seconds()*float64(rate)), len(messages))
		for ; done < due && len(f.subscriber.Messages()) < feedRoom; done++ {
			f.deliver(rueidis.PubSubMessage{Message: messages[done]})
		}
		if err := pace.Wait(ctx, begin.Add(elapsed+feedStep)); err != nil {
			return 0, err
		}
	}
	f.next += cell.Revision(done)
	for len(f.subscriber.Messages()) > 0 {
		runtime.Gosched()
	}
	return float64(done) / time.Since(begin).Seconds(), nil
}
