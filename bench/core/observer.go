package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
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

// observe is what a replica knows the fleet by: one cell, the connections, the cache. It answers
// "sights" with what was seen since the last time.
func observe(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) (err error) {
	if len(args) != 2 {
		return errors.New("expected the URL of Redis and a prefix of node ids")
	}
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	cfg := redisclient.Config{URL: args[0], Name: observerMode}
	commands, err := redisclient.Commands(cfg)
	if err != nil {
		return err
	}
	defer commands.Close()
	subscriber, err := redisclient.Subscriber(cfg)
	if err != nil {
		return err
	}
	defer subscriber.Close()
	c, err := cell.New(cell.Config{}, commands, zap.NewNop(), nil)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer stopCell(c)
	tracker := events.NewTracker(events.TrackerConfig{
		Prefix: trackedPrefix, Cells: []events.TrackedCell{{}},
		Open: func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
			return redisclient.Tracker(cfg, server, trackedPrefix, onInvalidations)
		},
	}, zap.NewNop(), nil)
	if err := tracker.Start(ctx); err != nil {
		return err
	}
	seen := &recorder{prefix: args[1]}
	known := cache.New(cache.Config{Mirror: seen}, []cache.Feed{{
		Source: c, Events: events.NewSubscriber(subscriber, c.Layout().NodeEvents(), false, zap.NewNop()), Watch: tracker.Watch(0),
	}}, zap.NewNop(), nil)
	if err := known.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, childReady)
	err = serveLines(in, out, map[string]func() any{"sights": func() any { return seen.take() }})
	stopCtx, cancelStop := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancelStop()
	return errors.Join(err, known.Stop(stopCtx), tracker.Stop(stopCtx))
}
