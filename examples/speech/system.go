package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/metrics"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second
)

// system is a Redis, a fleet of nodes and one replica, all for this program alone.
type system struct {
	redisURL string
	// url is the address at which the replica takes jobs.
	url string
	// stops end what has started, in reverse order.
	stops []func(context.Context) error
}

// startSystem keeps everything in folder. The nodes come before the replica, so that it knows all
// of them from its start on.
func startSystem(ctx context.Context, folder, synthesizer string) (_ *system, err error) {
	scratch := filepath.Join(folder, "tmp")
	if err := os.MkdirAll(scratch, 0o750); err != nil {
		return nil, err
	}
	s := &system{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	redis := redisserver.New(redisserver.Config{Dir: filepath.Join(folder, "redis")})
	if err := redis.Start(ctx); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, redis.Stop)
	s.redisURL = redis.URL()
	for _, id := range slices.Sorted(maps.Keys(fleet)) {
		w, err := newWorker(id, s.redisURL, synthesizer, scratch)
		if err != nil {
			return nil, err
		}
		if err := w.Start(ctx); err != nil {
			return nil, fmt.Errorf("start node %s: %w", id, err)
		}
		s.stops = append(s.stops, w.Stop)
	}
	return s, s.startReplica(ctx, filepath.Join(folder, "scheduler.log"))
}

// startReplica ignores the environment, whose settings are for another system. The replica logs to
// a file.
func (s *system) startReplica(ctx context.Context, logFile string) error {
	cfg, err := config.LoadReplica(config.Options{Environ: []string{}, Flags: []config.Flag{
		{Path: "listen", Value: "127.0.0.1:0"}, {Path: "redis.url", Value: s.redisURL}, {Path: "replica_id", Value: "speech"},
	}})
	if err != nil {
		return err
	}
	file, err := os.Create(logFile)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func(context.Context) error { return file.Close() })
	log, err := logging.New(logging.Config{}, file)
	if err != nil {
		return err
	}
	r := replica.New(cfg, log, metrics.NewRegistry())
	if err := r.Start(ctx); err != nil {
		return err
	}
	s.stops = append(s.stops, r.Stop)
	s.url = "ws://" + r.Addr()
	return nil
}

// stop ends the replica, then the nodes, then Redis.
func (s *system) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}
