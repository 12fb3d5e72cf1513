package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// openTimeout bounds how long a caller waits for a list server to be opened.
const openTimeout = 5 * time.Second

var errStopped = errors.New("the replica stops")

// servers holds the list servers of a replica. Each has connections of its own, because a build
// must not hold up the calls of jobs. Each is opened when it is first needed, independently of the
// others.
type servers struct {
	env    *feature.Env
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	opens  sync.WaitGroup

	mu     sync.Mutex
	opened map[string]*server // guarded by mu; nil once all are closed
}

// server is a list server. It is being opened until done is closed; then the rest is set.
type server struct {
	done     chan struct{}
	segments *version.Segments
	close    func()
	err      error
}

func newServers(env *feature.Env) *servers {
	s := &servers{env: env, opened: make(map[string]*server)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// open waits until the server is opened. If that failed, the next call tries again.
func (s *servers) open(ctx context.Context, name string) (*version.Segments, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s.mu.Lock()
	on := s.opened[name]
	if on == nil {
		if s.opened == nil {
			s.mu.Unlock()
			return nil, errStopped
		}
		on = &server{done: make(chan struct{})}
		s.opened[name] = on
		s.opens.Go(func() {
			defer close(on.done)
			if on.segments, on.close, on.err = s.connect(name); on.err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.opened, name)
			}
		})
	}
	s.mu.Unlock()
	select {
	case <-on.done:
		return on.segments, on.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to list server %q: %w", name, ctx.Err())
	}
}

func (s *servers) connect(name string) (*version.Segments, func(), error) {
	ctx, cancel := context.WithTimeout(s.ctx, openTimeout)
	defer cancel()
	cfg := &s.env.Config
	to := redisclient.Config{
		URL:  cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]),
		Name: "freeslot-lists", Access: cfg.Redis.Access(),
	}
	if name != "" {
		server, ok := cfg.Lists.Servers[name]
		if !ok {
			return nil, nil, &manage.NoServerError{Name: name}
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
	segments := version.SegmentsConfig{Prefix: cfg.Redis.KeyPrefix, Cluster: topology.Cluster}
	if name == "" {
		segments.Pace = version.Rest // its server also carries jobs
	}
	return version.NewSegments(segments, clients.For(0), s.env.Log.Named("lists"), nil), clients.Close, nil
}

// address returns a URL without credentials: readers have their own.
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
	opened := s.opened
	s.opened = nil
	s.mu.Unlock()
	s.cancel()
	s.opens.Wait()
	for _, on := range opened {
		if on.err == nil {
			on.close()
		}
	}
}
