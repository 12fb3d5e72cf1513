package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// replica is what a scheduler has below its interfaces: one cell, the connections, the cache.
type replica struct {
	commands, events rueidis.Client
	tracker          *events.Tracker
	cells            *cell.Set
	cache            *cache.Cache
}

// trackedPrefix is what the keys of all profiles begin with.
const trackedPrefix = cell.DefaultPrefix + ":nodes:"

// openReplica starts a replica; the caller closes it. mirror may be nil, wrap too: it comes between the cell
// and its connection.
func openReplica(ctx context.Context, url, name string, mirror cache.Mirror, wrap func(rueidis.Client) rueidis.Client, reg prometheus.Registerer) (_ *replica, err error) {
	r := new(replica)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	cfg := redisclient.Config{URL: url, Name: name}
	if r.commands, err = redisclient.Commands(cfg); err != nil {
		return nil, err
	}
	if r.events, err = redisclient.Subscriber(cfg); err != nil {
		return nil, err
	}
	used := r.commands
	if wrap != nil {
		used = wrap(used)
	}
	c, err := cell.New(cell.Config{}, used, zap.NewNop(), reg)
	if err != nil {
		return nil, err
	}
	r.cells = cell.NewSet(c)
	if err := r.cells.Start(ctx); err != nil {
		return nil, err
	}
	r.tracker = events.NewTracker(events.TrackerConfig{
		Prefix: trackedPrefix, Cells: []events.TrackedCell{{}},
		Open: func(server string, onInvalidations func([]rueidis.RedisMessage)) (rueidis.Client, error) {
			return redisclient.Tracker(cfg, server, trackedPrefix, onInvalidations)
		},
	}, zap.NewNop(), nil)
	if err := r.tracker.Start(ctx); err != nil {
		return nil, err
	}
	feed := cache.Feed{
		Source: c, Events: events.NewSubscriber(r.events, c.Layout().NodeEvents(), false, zap.NewNop()), Watch: r.tracker.Watch(0),
	}
	ca := cache.New(cache.Config{Mirror: mirror}, []cache.Feed{feed}, zap.NewNop(), reg)
	if err := ca.Start(ctx); err != nil {
		return nil, err
	}
	r.cache = ca
	return r, nil
}

func (r *replica) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	var errs []error
	if r.cache != nil {
		errs = append(errs, r.cache.Stop(ctx))
	}
	if r.tracker != nil {
		errs = append(errs, r.tracker.Stop(ctx))
	}
	if r.cells != nil {
		errs = append(errs, r.cells.Stop(ctx))
	}
	for _, c := range []rueidis.Client{r.events, r.commands} {
		if c != nil {
			c.Close()
		}
	}
	return errors.Join(errs...)
}

// childStart bounds the start of a child.
const childStart = 20 * time.Second
