package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// The registries.
const (
	freeslot = "freeslot"
	etcd     = "etcd"
	etcdOnce = "etcd, KeepAliveOnce"
	v1       = "v1: set, zset and hashes"
	expiring = "hash with EXPIRE"
)

const (
	entrantMode = "entrant"
	answerLimit = time.Minute
)

// process has clients of a registry on Redis.
type process struct {
	Name, Addr string
	Clients    int
}

func runEntrant(ctx context.Context, arg []byte, _ func(func([]byte) any)) {
	p := tool.Decode[process](arg)
	tool.Check(entrant.Serve(ctx, p.Clients, func(ctx context.Context) (entrant.Registry, error) {
		if p.Name == freeslot {
			return openOurs(ctx, p.Addr)
		}
		return openOnRedis(ctx, p.Addr, p.Name == v1)
	}))
}

// servers are the servers of a part: Redis, and etcd unless it is missing.
type servers struct {
	redis    *system.Redis
	programs *system.Programs
	etcd     *measure.Child // nil without one
	addr     string         // etcd's
}

// startEtcd builds and starts etcd. Where that fails the report says so and the part goes on.
func (s *servers) startEtcd(ctx context.Context, b *tool.Bench, wanted bool) {
	if !wanted {
		b.Say("etcd was left out by a flag.")
		return
	}
	s.programs = &system.Programs{Commands: make(map[string][]string)}
	if err := s.programs.BuildPeer(ctx, etcd, b.Root, b.Folder); err != nil {
		b.Say("etcd is missing: %v.", err)
		b.Progress("etcd is missing: %v", err)
		return
	}
	folder := tool.Must(os.MkdirTemp(b.Folder, etcd))
	s.etcd = s.peer(ctx, etcd, "server", filepath.Join(folder, "data"))
	start, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	s.addr = tool.Must(s.etcd.Ask(start, "address"))
	b.Say("etcd %s without fsync, a process of its own, one member.", system.PeerVersion(ctx, b.Root, etcd))
}

func (s *servers) peer(ctx context.Context, name string, args ...string) *measure.Child {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return tool.Must(measure.StartChild(ctx, name, s.programs.Command(etcd, args...)))
}

func (s *servers) stop() error {
	if s.etcd == nil {
		return nil
	}
	return s.etcd.End()
}

// start starts a process with clients of a registry.
func (s *servers) start(ctx context.Context, name string, clients int) *measure.Child {
	if role := map[string]string{etcd: "client", etcdOnce: "once"}[name]; role != "" {
		return s.peer(ctx, name, role, s.addr, strconv.Itoa(clients))
	}
	return tool.StartChild(ctx, name, entrantMode, process{name, s.redis.Addr(), clients})
}

// meter reads what the server of a registry has used, in seconds of all its threads.
func (s *servers) meter(ctx context.Context, name string) *system.Meter {
	pid := s.redis.PID()
	if name == etcd || name == etcdOnce {
		pid = s.etcd.PID()
	}
	return tool.Must(system.NewMeter(ctx, nil, pid))
}

// flush empties Redis.
func flush(ctx context.Context, redis *system.Redis) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	tool.Check(redis.Client.Do(ctx, redis.Client.B().Flushall().Build()).Error())
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r entrant.Request) entrant.Answer {
	return tool.Ask[entrant.Answer](ctx, c, r.Window, r)
}
