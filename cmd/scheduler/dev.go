package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/scheduler/dev"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
)

type devCmd struct {
	Listen    string  `default:"127.0.0.1:7480" placeholder:"HOST:PORT" help:"Address of HTTP and WebSocket, loopback only; port 0 takes any free one."`
	RedisPort int     `default:"7481" placeholder:"PORT" help:"Port of the Redis that is started; 0 takes any free one."`
	Dir       string  `default:".dev" type:"path" placeholder:"DIR" help:"Folder of the data."`
	Embedded  bool    `help:"Use devredis, a stand-in for Redis that keeps nothing, even where redis-server is installed."`
	Exit      bool    `help:"End after the first batch; the exit code is 0 only if every job succeeded."`
	Load      float64 `default:"5" placeholder:"N" help:"Jobs a second of tenant demo after the first batch, up to 10, with a schedule, a lock, lookups and a service; 0 turns the load off."`
	LogLevel  string  `default:"warn" placeholder:"LEVEL" help:"debug, info, warn or error."`
}

// Help is shown below the flags.
func (devCmd) Help() string {
	return `Starts a redis-server with its data under --dir, one replica and three nodes, runs a first
batch of jobs, prints their results, and serves until Ctrl-C. The third node reaches Redis through the replica alone.
A gentle load of the tenant demo goes on meanwhile; --load sets it.`
}

// Run brings the system up and waits for its end.
func (c *devCmd) Run(env *environment) error {
	if c.RedisPort < 0 || c.RedisPort > 65535 {
		return usageError{fmt.Errorf("--redis-port is %d, expected 0 to 65535", c.RedisPort)}
	}
	if !(c.Load >= 0 && c.Load <= dev.MaxLoad) { // neither holds for NaN
		return usageError{fmt.Errorf("--load is %g, expected 0 to %d jobs a second", c.Load, dev.MaxLoad)}
	}
	logger, err := logging.New(logging.Config{Level: c.LogLevel, Format: "console"}, env.err)
	if err != nil {
		return usageError{err}
	}
	return dev.Run(env.ctx, dev.Config{
		Dir: c.Dir, Listen: c.Listen, RedisPort: c.RedisPort, Embedded: c.Embedded, Exit: c.Exit, Load: c.Load,
		NewReplica: c.replica,
		Logger:     logger, Out: env.out,
	})
}

// replica is configured by the flags alone. Neither the environment nor a file for a real replica
// should change the dev system.
func (c *devCmd) replica(redisURL, tokensFile string, logger *zap.Logger) (dev.Replica, error) {
	cfg, err := config.LoadReplica(config.Options{Environ: []string{}, Flags: []config.Flag{
		{Name: "--listen", Path: "listen", Value: c.Listen},
		{Name: "--redis-port", Path: "redis.url", Value: redisURL},
		{Name: "dev", Path: "replica_id", Value: "dev"},
		{Name: "--dir", Path: "gateway.tokens_file", Value: tokensFile},
	}})
	if err != nil {
		return nil, usageError{err}
	}
	// Everything that is registered here is on this machine.
	cfg.Registry.Checks.Networks = append(cfg.Registry.Checks.Networks, "127.0.0.0/8")
	// A chain with this name can send jobs to other nodes: examples/canary.
	cfg.TenantDefaults.Admission = config.Admission{
		Chain: "canary", Mode: config.AdmissionEnforce, Subject: config.SubjectAffinityKey,
	}
	cfg.Lists.Dir = filepath.Join(c.Dir, "lists")
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && port != "0" {
		cfg.Advertise = "http://" + c.Listen
	}
	return devReplica{replica.New(cfg, logger, metrics.NewRegistry())}, nil
}

// devReplica also submits jobs of any tenant, which callers cannot where no tokens are configured.
type devReplica struct{ *replica.Replica }

func (r devReplica) Submit(ctx context.Context, tenant string, job *freeslot.Job) (err error) {
	r.Jobs().Submit(ctx, []dispatch.Request{{Tenant: tenant, Job: job}}, nil, func(_ int, _ dispatch.Accepted, e error) {
		err = e
	})
	return err
}
