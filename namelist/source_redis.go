package namelist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// redisSource reads lists from Redis.
type redisSource struct {
	cfg           Config
	control       *lists.Control
	commands      *redisclient.Clients
	subscriptions *redisclient.Clients

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	dials  sync.WaitGroup

	mu      sync.Mutex
	servers map[string]*listServer // guarded by mu
}

// listServer is a Redis server that holds segments. client is set once ready is closed.
type listServer struct {
	ready  chan struct{}
	client rueidis.Client
	close  func()
	at     string    // the URL of client
	reread time.Time // earliest time of the next reading of the addresses; guarded by the source's mu
}

// advisedLists bounds the lists named in an advice.
const advisedLists = 10

// rereadEvery is the least time between two readings of a list server's addresses.
const rereadEvery = time.Second

// openRedis connects to the control server.
func openRedis(ctx context.Context, cfg Config) (source, error) {
	topology, err := redisclient.Inspect(
		ctx, redisclient.Config{URL: cfg.RedisURL, Name: cfg.ClientName, Access: cfg.Access.redis()},
	)
	if err != nil {
		return nil, fmt.Errorf("connect to redis: %w", err)
	}
	commands, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, fmt.Errorf("connect to redis: %w", err)
	}
	subscriptions, err := topology.Open(redisclient.Subscriber)
	if err != nil {
		commands.Close()
		return nil, fmt.Errorf("connect to redis: %w", err)
	}
	s := &redisSource{
		cfg: cfg, commands: commands, subscriptions: subscriptions, servers: make(map[string]*listServer),
		control: lists.NewControl(commands.For(0), cfg.KeyPrefix, topology.Cluster, cfg.Logger, cfg.Registerer),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	own := &listServer{ready: make(chan struct{}), client: commands.For(0), close: func() {}}
	close(own.ready)
	s.servers[""] = own
	return s, nil
}

func (s *redisSource) close() {
	s.mu.Lock() // no dial begins after this
	s.cancel()
	s.mu.Unlock()
	s.dials.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		select {
		case <-server.ready:
			server.close()
		default:
		}
	}
	s.subscriptions.Close()
	s.commands.Close()
}

func (s *redisSource) follow(list string, heard func(lists.Event)) (stop func()) {
	return s.control.Follow(s.subscriptions.For(0), list, s.cfg.Logger, heard)
}

func (s *redisSource) poll(ctx context.Context, names []string, history bool) ([]lists.Mark, string, time.Time, error) {
	marks, is, at, err := s.control.Look(ctx, names, history)
	return marks, is, at, s.advise(err, names...)
}

func (s *redisSource) delta(ctx context.Context, list string, after int64) (lists.Delta, error) {
	d, err := s.control.Delta(ctx, list, after, true)
	return d, s.advise(err, list)
}

// advise adds advice to an error by which Redis denies its user lists.
func (s *redisSource) advise(err error, names ...string) error {
	advice := s.cfg.Access.redis().Denied(err, s.cfg.RedisURL, func(user string) string {
		command := "schedctl acl --role list-reader"
		for _, name := range names[:min(len(names), advisedLists)] {
			chain, _ := lists.ChainOf(name)
			command += " --list " + chain
		}
		if user != "" {
			command += " --user " + user
		}
		if s.cfg.KeyPrefix != DefaultKeyPrefix {
			command += " --key-prefix " + s.cfg.KeyPrefix
		}
		return command
	})
	if advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

func (s *redisSource) chain(ctx context.Context, chain string) (lists.ChainRecord, error) {
	c, err := s.control.Chain(ctx, chain)
	return c, s.advise(err, chain)
}

func (s *redisSource) report(ctx context.Context, client string, reports map[string]lists.ClientReport) error {
	return s.control.Report(ctx, client, reports)
}

func (s *redisSource) block(ctx context.Context, list string, v *lists.Version, index uint32) ([]byte, error) {
	on, err := s.server(ctx, v.Server)
	if err != nil {
		return nil, err
	}
	wire, err := on.Do(ctx, on.B().Get().Key(lists.BlockKey(s.cfg.KeyPrefix, list, v.Number, index)).Build()).AsBytes()
	if err != nil {
		s.lost(v.Server, err)
		return nil, fmt.Errorf("block %d of version %d of list %s: %w", index, v.Number, list, err)
	}
	return wire, nil
}

func (s *redisSource) ask(ctx context.Context, list string, v *lists.Version, questions []question) []found {
	out := make([]found, len(questions))
	on, err := s.server(ctx, v.Server)
	if err != nil {
		for i := range out {
			out[i].why = ReasonTimeout
		}
		return out
	}
	ids, hashes := make([]string, len(questions)), make([]uint64, len(questions))
	for i, q := range questions {
		ids[i], hashes[i] = q.id, q.hash
	}
	for i, f := range lists.Ask(ctx, on, s.cfg.KeyPrefix, list, v, ids, hashes) {
		out[i] = foundOf(f)
		if f.Why == lists.WhyTimeout {
			s.lost(v.Server, context.DeadlineExceeded)
		}
	}
	return out
}

func (s *redisSource) whole(ctx context.Context, list string, v *lists.Version) (map[string]int64, error) {
	on, err := s.server(ctx, v.Server)
	if err != nil {
		return nil, err
	}
	ids, err := lists.Whole(ctx, on, s.cfg.KeyPrefix, list, v)
	s.lost(v.Server, err)
	return ids, err
}

// server returns the client of a list server. The first call for it connects in the background.
func (s *redisSource) server(ctx context.Context, name string) (rueidis.Client, error) {
	s.mu.Lock()
	on := s.servers[name]
	if on == nil && s.ctx.Err() == nil {
		on = &listServer{ready: make(chan struct{})}
		s.servers[name] = on
		s.dials.Go(func() { s.dial(name, on) })
	}
	s.mu.Unlock()
	if on == nil {
		return nil, ErrClosed
	}
	select {
	case <-on.ready:
		return on.client, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("list server %s was not reached: %w", name, context.Cause(ctx))
	}
}

// lost checks in the background whether a list server that did not answer has new addresses.
func (s *redisSource) lost(name string, err error) {
	if _, refused := rueidis.IsRedisErr(err); err == nil || refused || rueidis.IsRedisNil(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.servers[name]
	if name == "" || on == nil || s.ctx.Err() != nil || time.Now().Before(on.reread) {
		return
	}
	on.reread = time.Now().Add(rereadEvery)
	s.dials.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		defer cancel()
		fresh := &listServer{ready: make(chan struct{}), at: on.at}
		if err := s.dialOnce(ctx, name, fresh); err != nil || fresh.client == nil {
			return // calls fail, and report it
		}
		close(fresh.ready)
		s.mu.Lock()
		s.servers[name] = fresh
		s.mu.Unlock()
		on.close()
	})
}

// dial tries to connect to a list server until it succeeds.
func (s *redisSource) dial(name string, on *listServer) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		err := s.dialOnce(ctx, name, on)
		cancel()
		if err == nil {
			close(on.ready)
			return
		}
		s.cfg.Logger.Warn("namelist.server_not_reached", zap.String("server", name), zap.Error(err))
		select {
		case <-time.After(wait.NextBackOff()):
		case <-s.ctx.Done():
		}
	}
}

// dialOnce connects to a list server, unless its URL is on.at already.
func (s *redisSource) dialOnce(ctx context.Context, name string, on *listServer) error {
	servers, err := s.control.Servers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if server.Name != name {
			continue
		}
		at, err := serverURL(s.cfg.RedisURL, server.Addresses)
		if err != nil || at == on.at {
			return err
		}
		topology, err := redisclient.Inspect(
			ctx, redisclient.Config{URL: at, Name: s.cfg.ClientName, Access: s.cfg.Access.redis()},
		)
		if err != nil {
			return err
		}
		clients, err := topology.Open(redisclient.Commands)
		if err != nil {
			return err
		}
		on.client, on.close, on.at = clients.For(0), clients.Close, at
		return nil
	}
	return errors.New("the control server does not know it")
}

// serverURL returns the URL of a list server: its own addresses, with the user of the control
// server.
func serverURL(control string, addresses []string) (string, error) {
	var urls []*url.URL
	for _, raw := range append([]string{control}, addresses...) {
		at, err := url.Parse(raw)
		if err != nil {
			return "", err
		}
		urls = append(urls, at)
	}
	if len(urls) == 1 {
		return "", errors.New("it has no address")
	}
	at, query := urls[1], urls[1].Query()
	for _, more := range urls[2:] {
		query.Add("addr", net.JoinHostPort(more.Hostname(), cmp.Or(more.Port(), "6379")))
	}
	at.User, at.RawQuery = urls[0].User, query.Encode()
	return at.String(), nil
}
