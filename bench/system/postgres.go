package system

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/testing/postgrestest"
)

// postgres is a server in a folder of its own, which goes away with it.
type postgres struct {
	*measure.Process
	cluster *postgrestest.Cluster
}

// postgresSettings are by durability: as an append-only file is off, everysec or always.
var postgresSettings = map[string][]string{
	AOFOff:     {"fsync=off", "synchronous_commit=off", "full_page_writes=off"},
	"everysec": {"fsync=on", "synchronous_commit=off", "wal_writer_delay=200ms"},
	"always":   {"fsync=on", "synchronous_commit=on"},
}

func startPostgres(ctx context.Context, aof string) (*postgres, error) {
	cluster, err := postgrestest.Create(ctx)
	if err != nil {
		return nil, err
	}
	settings := append([]string{
		"max_connections=200", "shared_buffers=256MB", "max_wal_size=4GB", "checkpoint_timeout=30min",
	}, postgresSettings[aof]...)
	cmd, err := cluster.Command(settings...)
	if err != nil {
		return nil, errors.Join(err, cluster.Remove())
	}
	p := &postgres{cluster: cluster}
	if p.Process, err = measure.StartProcess("postgres", cmd); err != nil {
		return nil, errors.Join(err, cluster.Remove())
	}
	if err := cluster.Await(ctx, p.Done); err != nil {
		p.Kill()
		return nil, errors.Join(err, p.Exited(), cluster.Remove())
	}
	return p, nil
}

// stop ends it by a fast shutdown, which is SIGINT to Postgres.
func (p *postgres) stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.Done:
	case <-time.After(measure.StopGrace):
		_ = p.Cmd.Process.Kill()
		<-p.Done
	}
	return p.cluster.Remove()
}
