package main

import (
	"context"
	"errors"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/dispatch/presence"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
)

// profileKeys is what the keys of all profiles begin with.
const profileKeys = cell.DefaultPrefix + ":nodes:"

// replica is what a scheduler of one cell has below its interfaces.
type replica struct {
	clients    []rueidis.Client
	stops      []func(context.Context) error
	dispatcher *dispatch.Dispatcher
}

// openReplica starts a replica of this name; the caller closes it.
func openReplica(ctx context.Context, url, name string) (_ *replica, err error) {
	r := new(replica)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	cfg := redisclient.Config{URL: url, Name: name}
	commands, err := redisclient.Commands(cfg)
	if err != nil {
		return nil, err
	}
	r.clients = append(r.clients, commands)
	subscriber, err := redisclient.Subscriber(cfg)
	if err != nil {
		return nil, err
	}
	r.clients = append(r.clients, subscriber)
	c, err := cell.New(cell.Config{Scripts: script.Keep}, commands, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	cells := cell.NewSet(c)
	tracker := events.NewTracker(events.TrackerConfig{
		Prefix: profileKeys, Cells: []events.TrackedCell{{}},
		Open: func(server string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
			return redisclient.Tracker(cfg, server, profileKeys, on)
		},
	}, zap.NewNop(), nil)
	known := cache.New(cache.Config{}, []cache.Feed{{
		Source: c, Watch: tracker.Watch(0), Events: events.NewSubscriber(subscriber, c.Layout().NodeEvents(), false, zap.NewNop()),
	}}, zap.NewNop(), nil)
	if r.dispatcher, err = dispatch.New(dispatch.Config{Replica: name}, cells, known, zap.NewNop(), nil); err != nil {
		return nil, err
	}
	for _, s := range []interface {
		Start(ctx context.Context) error
		Stop(ctx context.Context) error
	}{cells, tracker, known, r.dispatcher} {
		r.stops = append(r.stops, s.Stop)
		if err := s.Start(ctx); err != nil {
			return nil, err
		}
	}
	here := presence.New(presence.Config{Replica: name, OnChange: func(replicas []string) {
		known.SetShare(selection.NewShare(name, replicas))
		r.dispatcher.SetReplicas(replicas)
	}}, presence.NewStore(c.Runner()), zap.NewNop())
	here.Start()
	r.stops = append(r.stops, here.Stop)
	return r, nil
}

// close stops what was started, the latest first.
func (r *replica) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	var errs []error
	for i := len(r.stops) - 1; i >= 0; i-- {
		errs = append(errs, r.stops[i](ctx))
	}
	for _, c := range r.clients {
		c.Close()
	}
	return errors.Join(errs...)
}
