package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	childMode   = "child"
	answerLimit = time.Minute
)

// childMain is the process of a registry on Redis: its name, the address, and the number of
// clients; or one that holds instances.
func childMain(args []string) int {
	ctx := context.Background()
	if args[0] == provideMode {
		if err := provide(ctx, args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return entrant.Main(ctx, count, func(ctx context.Context) (entrant.Registry, error) {
		if args[0] == freeslot {
			return openOurs(ctx, args[1])
		}
		return openOnRedis(ctx, args[1], args[0] == v1)
	})
}

// startSelf starts this program again.
func startSelf(ctx context.Context, name string, args ...string) (*measure.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{childMode}, args...)...)
	cmd.Env = measure.PlainEnv()
	return measure.StartChild(ctx, name, cmd, entrant.Ready)
}

// servers are the servers of a part: Redis, and etcd unless it is missing.
type servers struct {
	redis    *system.Redis
	programs *system.Programs
	etcd     *measure.Child // nil without one
	addr     string         // etcd's
}

// startEtcd builds and starts etcd. Where that fails the report says so and the part goes on.
func (s *servers) startEtcd(ctx context.Context, b *tool.Bench, wanted bool) error {
	if !wanted {
		b.Say("etcd was left out by a flag.")
		return nil
	}
	programs := &system.Programs{Commands: make(map[string][]string)}
	if err := programs.BuildPeer(ctx, etcd, b.Root, b.Folder); err != nil {
		b.Say("etcd is missing: %v.", err)
		b.Progress("etcd is missing: %v", err)
		return nil
	}
	folder, err := os.MkdirTemp(b.Folder, etcd)
	if err != nil {
		return err
	}
	start, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	s.programs = programs
	if s.etcd, err = measure.StartChild(start, etcd, programs.Command(etcd, "server", filepath.Join(folder, "data")), entrant.Ready); err != nil {
		return err
	}
	s.addr, err = s.etcd.Ask(start, "address")
	b.Say("etcd %s without fsync, a process of its own, one member.", system.PeerVersion(ctx, b.Root, etcd))
	return err
}

func (s *servers) stop() error {
	if s.etcd == nil {
		return nil
	}
	return s.etcd.End()
}

// start starts a process with clients of a registry.
func (s *servers) start(ctx context.Context, name string, clients int) (*measure.Child, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if role := map[string]string{etcd: "client", etcdOnce: "once"}[name]; role != "" {
		return measure.StartChild(ctx, name, s.programs.Command(etcd, role, s.addr, strconv.Itoa(clients)), entrant.Ready)
	}
	return startSelf(ctx, name, name, s.redis.Addr(), strconv.Itoa(clients))
}

// cpu is what the server of a registry has used so far, in seconds of all its threads.
func (s *servers) cpu(name string) (float64, error) {
	if name == etcd || name == etcdOnce {
		return measure.CPUSeconds(s.etcd.PID())
	}
	return measure.CPUSeconds(s.redis.PID())
}

// flush empties Redis.
func flush(ctx context.Context, redis *system.Redis) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return redis.Client.Do(ctx, redis.Client.B().Flushall().Build()).Error()
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r entrant.Request) (a entrant.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Window+answerLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	text, err := c.Ask(ctx, string(line))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		first, _, _ := strings.Cut(a.Error, "\n")
		return a, fmt.Errorf("%s: %s: %s", c.Name, r.Do, first)
	}
	return a, nil
}

// askAll asks all at the same time.
func askAll(ctx context.Context, children []*measure.Child, r entrant.Request) ([]entrant.Answer, error) {
	answers, errs := make([]entrant.Answer, len(children)), make([]error, len(children))
	var all sync.WaitGroup
	for i, c := range children {
		all.Go(func() { answers[i], errs[i] = ask(ctx, c, r) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

func end(children []*measure.Child) (failed error) {
	for _, c := range children {
		failed = errors.Join(failed, c.End())
	}
	return failed
}
