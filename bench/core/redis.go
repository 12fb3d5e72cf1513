package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// noAOF and everysec are how a scenario's Redis keeps its data.
const (
	noAOF    = "append-only file off"
	everysec = "append-only file, fsync everysec"
)

// server is a scenario's own Redis.
type server struct {
	*redisserver.Server
	client rueidis.Client
}

// startRedis starts a server for the scenario and notes which.
func (b *bench) startRedis(ctx context.Context, durability string, args ...string) (_ *server, err error) {
	startCtx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	s := &server{Server: redisserver.New(redisserver.Config{AppendOnly: durability == everysec, AppendFsync: "everysec", ExtraArgs: args})}
	if err := s.Start(startCtx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.client, err = s.commands("bench"); err != nil {
		return nil, err
	}
	b.result.Durability = durability
	b.result.Redis, err = measure.RedisVersion(ctx, s.client)
	return s, err
}

func (s *server) commands(name string) (rueidis.Client, error) {
	return redisclient.Commands(redisclient.Config{URL: s.URL(), Name: name})
}

// raise gives Redis more of the processors than the others get; false means that this was
// not allowed.
func (s *server) raise(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	text, err := s.client.Do(ctx, s.client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return false, fmt.Errorf("process of redis: %w", err)
	}
	_, rest, _ := strings.Cut(text, "process_id:")
	line, _, _ := strings.Cut(rest, "\r\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return false, fmt.Errorf("process of redis: %w", err)
	}
	return raise(pid) == nil, nil
}

// connections is how many clients are connected, and the MiB that Redis uses for them.
func (s *server) connections(ctx context.Context) (clients, mib float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	text, err := s.client.Do(ctx, s.client.B().Info().Section("clients", "memory").Build()).ToString()
	if err != nil {
		return 0, 0, err
	}
	figures := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if figure, err := strconv.ParseFloat(value, 64); err == nil {
			figures[name] = figure
		}
	}
	return figures["connected_clients"], figures["mem_clients_normal"] / (1 << 20), nil
}

func (s *server) stop() error {
	if s.client != nil {
		s.client.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return s.Stop(ctx)
}

// do runs one plain command.
func (s *server) do(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	if err := s.client.Do(ctx, s.client.B().Arbitrary(args...).Build()).Error(); err != nil {
		return fmt.Errorf("%q: %w", args, err)
	}
	return nil
}

// newCell makes a started cell on client. Nodes of a benchmark do not beat unless that is measured, so
// they may be silent for long.
func newCell(ctx context.Context, client rueidis.Client) (*cell.Cell, error) {
	c, err := cell.New(cell.Config{HeartbeatLimit: time.Hour, CallTimeout: measure.CallTimeout}, client, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

func stopCell(c *cell.Cell) {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	_ = c.Stop(ctx) // nothing is under way
}
