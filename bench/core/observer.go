package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	observerMode = "core-observer"
	// trackedPrefix is what the keys of all profiles begin with.
	trackedPrefix = cell.DefaultPrefix + ":nodes:"
)

// sight is a state of a node as a cache came to know it.
type sight struct {
	Node string `json:"n"`
	Used int    `json:"u"`
	// Mark is what the writer put into the resources.
	Mark string `json:"m"`
	// AtNS is the wall clock, which all processes of a machine share.
	AtNS int64 `json:"t"`
}

// recorder is a mirror that notes when the cache has applied what. Only nodes whose id begins with
// prefix count.
type recorder struct {
	prefix string
	mu     sync.Mutex // guards sights
	sights []sight
}

// Put implements cache.Mirror; a Heartbeat follows.
func (*recorder) Put(*cell.NodeState) {}

// Heartbeat implements cache.Mirror.
func (r *recorder) Heartbeat(id string, used int, _ freeslot.Status, _ int64, resources string) {
	if !strings.HasPrefix(id, r.prefix) {
		return
	}
	at := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sights = append(r.sights, sight{Node: id, Used: used, Mark: resources, AtNS: at})
}

// Remove implements cache.Mirror.
func (*recorder) Remove(string) {}

// SetConfig implements cache.Mirror.
func (*recorder) SetConfig(*selection.Config) {}

func (r *recorder) take() []sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.sights
	r.sights = nil
	return taken
}

// observed is what an observer looks at: nodes whose ids begin with Prefix.
type observed struct{ URL, Prefix string }

// observe is what a replica knows the fleet by: one cell, the connections, the cache. It answers
// with what was seen since the last time.
func observe(ctx context.Context, arg []byte, serve func(func([]byte) any)) {
	o := tool.Decode[observed](arg)
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	cfg := redisclient.Config{URL: o.URL, Name: observerMode}
	commands := tool.Must(redisclient.Commands(cfg))
	defer commands.Close()
	subscriber := tool.Must(redisclient.Subscriber(cfg))
	defer subscriber.Close()
	c, stop := newCell(ctx, commands, cell.Config{})
	defer stop()
	tracker := events.NewTracker(events.TrackerConfig{
		Prefix: trackedPrefix, Cells: []events.TrackedCell{{}},
		Open: func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
			return redisclient.Tracker(cfg, server, trackedPrefix, onInvalidations)
		},
	}, zap.NewNop(), nil)
	tool.Check(tracker.Start(ctx))
	defer stopQuietly(tracker.Stop)
	seen := &recorder{prefix: o.Prefix}
	known := cache.New(cache.Config{Mirror: seen}, []cache.Feed{{
		Source: c, Events: events.NewSubscriber(subscriber, c.Layout().NodeEvents(), false, zap.NewNop()), Watch: tracker.Watch(0),
	}}, zap.NewNop(), nil)
	tool.Check(known.Start(ctx))
	defer stopQuietly(known.Stop)
	serve(func([]byte) any { return seen.take() })
}
