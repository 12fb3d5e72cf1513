package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/build"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

// servers are the list servers of a replica, each with connections of its own: a build must not
// hold up the calls of jobs. They are opened when they are first needed.
type servers struct {
	env *feature.Env

	mu     sync.Mutex
	opened map[string]*build.Segments // guarded by mu
	closes []func()                   // guarded by mu
}

func (s *servers) open(ctx context.Context, name string) (*build.Segments, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.opened[name]; have != nil {
		return have, nil
	}
	cfg := &s.env.Config
	to := redisclient.Config{
		URL:  cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]),
		Name: "freeslot-lists", Access: cfg.Redis.Access(),
	}
	if name != "" {
		server, ok := cfg.Lists.Servers[name]
		if !ok {
			return nil, fmt.Errorf("this replica does not have list server %s in lists.servers", name)
		}
		to.URL = server.URL
	}
	topology, err := redisclient.Inspect(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("connect to list server %q: %w", name, err)
	}
	clients, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, fmt.Errorf("connect to list server %q: %w", name, err)
	}
	segments := build.SegmentsConfig{Prefix: cfg.Redis.KeyPrefix, Cluster: topology.Cluster}
	if name == "" {
		segments.Pace = pace // it carries jobs, too
	}
	s.opened[name] = build.NewSegments(segments, clients.For(0), s.env.Log.Named("lists"), nil)
	s.closes = append(s.closes, clients.Close)
	return s.opened[name], nil
}

// pace lets a server that also carries jobs rest three times as long as a call took.
func pace(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(3 * took)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// address is a URL without credentials: readers have their own.
func address(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

func (s *servers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, closeOne := range s.closes {
		closeOne()
	}
	s.opened, s.closes = nil, nil
}
