package dev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// store is the Redis of a dev system.
type store struct {
	url string
	// lacks is a warning about missing features; empty for a real server.
	lacks string
	// failed is closed when the server ended by itself, and err is then the reason.
	failed <-chan struct{}
	err    func() error
	stop   func(ctx context.Context) error
}

// startRedis starts a redis-server on port (0: any free one) with its data under dir. It starts the
// stand-in if no redis-server is installed or embedded is set.
func startRedis(ctx context.Context, dir string, port int, embedded bool, log *zap.Logger) (*store, error) {
	if embedded {
		return startStandIn(ctx, port, "")
	}
	server := redisserver.New(redisserver.Config{
		Dir: filepath.Join(dir, "redis"), Port: port, AppendOnly: true, Logger: log,
	})
	err := server.Start(ctx)
	if errors.Is(err, redisserver.ErrNotFound) {
		return startStandIn(ctx, port, "no redis-server is installed (`make deps` installs one); ")
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
