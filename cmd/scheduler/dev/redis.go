package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/zap"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// store is the Redis of a dev system.
type store struct {
	url string
	// lacks is a warning about missing features; empty for a real server.
	lacks string
	// failed is closed when the server ended by itself, and err is then the reason. Both are nil
	// for the stand-in.
	failed <-chan struct{}
	err    func() error
	stop   func(ctx context.Context) error
}

// startRedis starts a redis-server on port (0: any free one) with its data under dir. It starts the
// embedded stand-in if no redis-server is installed or embedded is set.
func startRedis(ctx context.Context, dir string, port int, embedded bool, log *zap.Logger) (*store, error) {
	if embedded {
		return startEmbedded(port, "")
	}
	server := redisserver.New(redisserver.Config{
		Dir: filepath.Join(dir, "redis"), Port: port, AppendOnly: true, Logger: log,
	})
	err := server.Start(ctx)
	if errors.Is(err, redisserver.ErrNotFound) {
		return startEmbedded(port, "no redis-server is installed (`make deps` installs one); ")
	}
	switch {
	case errors.Is(err, redisserver.ErrPortTaken):
		return nil, fmt.Errorf("--redis-port %d: %w", port, err)
	case errors.Is(err, redisserver.ErrDir):
		return nil, fmt.Errorf("--dir %s: %w", dir, err)
	case err != nil:
		return nil, err
	}
	return &store{url: server.URL(), failed: server.Done(), err: server.Err, stop: server.Stop}, nil
}

func startEmbedded(port int, why string) (*store, error) {
	m := miniredis.NewMiniRedis()
	// Without this TTLs in the stand-in do not expire.
	m.ClockTTL(true)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf(
			"embedded redis: %w: stop what listens on %s, or choose another port with --redis-port", err, addr,
		)
	}
	return &store{
		url: "redis://" + m.Addr(),
		lacks: why + "running on the embedded stand-in: nothing is kept when this process ends, no client-side caching, " +
			"slow; for trying out only",
		stop: func(context.Context) error { m.Close(); return nil },
	}, nil
}
