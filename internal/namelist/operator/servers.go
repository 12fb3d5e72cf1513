package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/namelist/build"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

// dialTimeout bounds the connection to a list server.
const dialTimeout = 5 * time.Second

// servers are the list servers of a replica, each with connections of its own: a build must not
// hold up the calls of jobs. They are opened when they are first needed.
type servers struct {
	env   *feature.Env
	dials sync.WaitGroup

	mu     sync.Mutex
	closed bool             // guarded by mu
	opened map[string]*dial // guarded by mu
}

// dial is a connection; the rest is there once done is closed.
type dial struct {
	done     chan struct{}
	segments *build.Segments
	close    func()
	err      error
}

// open waits for a connection. A server that does not answer holds up those who need it alone, and
// a caller that goes away does not end the attempt.
func (s *servers) open(ctx context.Context, name string) (*build.Segments, error) {
	s.mu.Lock()
	d := s.opened[name]
	if d == nil && !s.closed {
		d = &dial{done: make(chan struct{})}
		s.opened[name] = d
		s.dials.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
			defer cancel()
			if d.segments, d.close, d.err = s.connect(ctx, name); d.err != nil {
				s.mu.Lock()
				delete(s.opened, name) // the next call tries again
				s.mu.Unlock()
			}
			close(d.done)
		})
	}
	s.mu.Unlock()
	if d == nil {
		return nil, rueidis.ErrClosing
	}
	select {
	case <-d.done:
		return d.segments, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to list server %q: %w", name, context.Cause(ctx))
	}
}

func (s *servers) connect(ctx context.Context, name string) (*build.Segments, func(), error) {
	cfg := &s.env.Config
	to := redisclient.Config{
		URL:  cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]),
		Name: "freeslot-lists", Access: cfg.Redis.Access(),
	}
	if name != "" {
		server, ok := cfg.Lists.Servers[name]
		if !ok {
			return nil, nil, fmt.Errorf("this replica does not have list server %s in lists.servers", name)
		}
		to.URL = server.URL
	}
	topology, err := redisclient.Inspect(ctx, to)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to list server %q: %w", name, err)
	}
	clients, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to list server %q: %w", name, err)
	}
	segments := build.SegmentsConfig{Prefix: cfg.Redis.KeyPrefix, Cluster: topology.Cluster}
	if name == "" {
		segments.Pace = pace // it carries jobs, too
	}
	return build.NewSegments(segments, clients.For(0), s.env.Log.Named("lists"), nil), clients.Close, nil
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
	s.closed = true
	s.mu.Unlock()
	s.dials.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.opened {
		d.close()
	}
	s.opened = nil
}
