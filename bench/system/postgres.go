package system

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/testing/postgrestest"
)

// Postgres is a server in a folder of its own, which goes away with it.
type Postgres struct {
	*measure.Process
	cluster *postgrestest.Cluster
}

// postgresSettings are by durability: as an append-only file is off, everysec or always.
var postgresSettings = map[string][]string{
	AOFOff:     {"fsync=off", "synchronous_commit=off", "full_page_writes=off"},
	"everysec": {"fsync=on", "synchronous_commit=off", "wal_writer_delay=200ms"},
	"always":   {"fsync=on", "synchronous_commit=on"},
}

// HasPostgres reports whether PostgreSQL is installed.
func HasPostgres() bool {
	_, err := postgrestest.Find("postgres")
	return err == nil
}

// StartPostgres starts a server that keeps its data in this way; the caller stops it.
func StartPostgres(ctx context.Context, aof string) (*Postgres, error) {
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
	p := &Postgres{cluster: cluster}
	if p.Process, err = measure.StartProcess("postgres", cmd); err != nil {
		return nil, errors.Join(err, cluster.Remove())
	}
	if err := cluster.Await(ctx, p.Done); err != nil {
		p.Kill()
		return nil, errors.Join(err, p.Exited(), cluster.Remove())
	}
	return p, nil
}

// URL is the address of a database, for a user who may do everything.
func (p *Postgres) URL() string { return p.cluster.URL() }

// Version names the server's release.
func (p *Postgres) Version(ctx context.Context) string { return postgrestest.Version(ctx) }

// Stop ends it by a fast shutdown, which is SIGINT to Postgres.
func (p *Postgres) Stop() error {
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.Done:
	case <-time.After(measure.StopGrace):
		_ = p.Cmd.Process.Kill()
		<-p.Done
	}
	return p.cluster.Remove()
}
