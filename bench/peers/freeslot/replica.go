package main

import (
	"context"
	"errors"
	"strconv"

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

// replica is what a scheduler has below its interfaces, put together as cmd/scheduler does it.
type replica struct {
	topology   *redisclient.Topology
	commands   *redisclient.Clients
	events     *redisclient.Clients
	tracker    *events.Tracker
	cells      *cell.Set
	cache      *cache.Cache
	presence   *presence.Presence
	dispatcher *dispatch.Dispatcher
}

// openReplica starts a replica of this name; the caller closes it.
func openReplica(ctx context.Context, url, name string, cellCount int) (_ *replica, err error) {
	r := new(replica)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.topology, err = redisclient.Inspect(ctx, redisclient.Config{URL: url, Name: name}); err != nil {
		return nil, err
	}
	if r.commands, err = r.topology.Open(redisclient.Commands); err != nil {
		return nil, err
	}
	if r.events, err = r.topology.Open(redisclient.Subscriber); err != nil {
		return nil, err
	}
	layouts := cell.Layouts(cell.DefaultPrefix, cellCount, r.topology.Cluster)
	r.tracker = r.newTracker(layouts)
	all, feeds := make([]*cell.Cell, len(layouts)), make([]cache.Feed, len(layouts))
	for i, layout := range layouts {
		cfg := cell.Config{Layout: layout, Index: i, Cells: len(layouts), Servers: r.topology.Servers, Scripts: script.Keep}
		if all[i], err = cell.New(cfg, r.commands.For(i), zap.NewNop(), nil); err != nil {
			return nil, err
		}
		feeds[i] = cache.Feed{
			Source: all[i], Watch: r.tracker.Watch(i),
			Events: events.NewSubscriber(r.events.For(i), layout.NodeEvents(), layout.Sharded, zap.NewNop()),
		}
	}
	r.cells = cell.NewSet(all...)
	return r, r.start(ctx, name, feeds)
}

func (r *replica) newTracker(layouts []cell.Layout) *events.Tracker {
	prefix := cell.DefaultPrefix + ":nodes:"
	cfg := events.TrackerConfig{Prefix: prefix, Cells: make([]events.TrackedCell, len(layouts))}
	for i, l := range layouts {
		slot, _ := l.Slot()
		cfg.Cells[i] = events.TrackedCell{Index: i, Tag: l.Tag, Slot: uint16(slot), Server: strconv.Itoa(r.topology.Server(i))}
	}
	cfg.Open = func(server string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
		if !r.topology.Cluster {
			server = ""
		}
		return redisclient.Tracker(r.topology.Config(0), server, prefix, on)
	}
	if r.topology.Cluster {
		cfg.Masters = events.ClusterMasters(r.commands.For(0))
	}
	return events.NewTracker(cfg, zap.NewNop(), nil)
}

func (r *replica) start(ctx context.Context, name string, feeds []cache.Feed) (err error) {
	if err := r.cells.Start(ctx); err != nil {
		return err
	}
	if err := r.tracker.Start(ctx); err != nil {
		return err
	}
	r.cache = cache.New(cache.Config{}, feeds, zap.NewNop(), nil)
	if err := r.cache.Start(ctx); err != nil {
		return err
	}
	if r.dispatcher, err = dispatch.New(dispatch.Config{Replica: name}, r.cells, r.cache, zap.NewNop(), nil); err != nil {
		return err
	}
	if err := r.dispatcher.Start(ctx); err != nil {
		return err
	}
	r.presence = presence.New(presence.Config{Replica: name, OnChange: func(replicas []string) {
		r.cache.SetShare(selection.NewShare(name, replicas))
		r.dispatcher.SetReplicas(replicas)
	}}, presence.NewStore(r.cells.At(0).Runner()), zap.NewNop())
	r.presence.Start()
	return nil
}

func (r *replica) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	var errs []error
	if r.dispatcher != nil {
		errs = append(errs, r.dispatcher.Stop(ctx))
	}
	if r.presence != nil {
		errs = append(errs, r.presence.Stop(ctx))
	}
	if r.cache != nil {
		errs = append(errs, r.cache.Stop(ctx))
	}
	if r.tracker != nil {
		errs = append(errs, r.tracker.Stop(ctx))
	}
	if r.cells != nil {
		errs = append(errs, r.cells.Stop(ctx))
	}
	for _, c := range []*redisclient.Clients{r.events, r.commands} {
		if c != nil {
			c.Close()
		}
	}
	return errors.Join(errs...)
}
