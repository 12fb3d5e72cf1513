// Package system starts the systems that the load tools measure: a store, workers, replicas and a
// load generator, each a process of its own on this machine.
package system

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// answerLimit is how long a load may take beyond its window: what is in flight must end.
const answerLimit = 2 * time.Minute

// Store is where a system keeps its jobs.
type Store int

// The stores. Own is a server that the peer's program brings along.
const (
	InRedis Store = iota
	InPostgres
	Own
)

// Shape is what a system is made of.
type Shape struct {
	// Program is the peer whose program runs the jobs and submits them. LoadProgram is another one
	// that submits them; empty: Program does.
	Program, LoadProgram string
	Store                Store
	// AOF is AOFOff, or the appendfsync of the append-only file.
	AOF string
	// Schedulers is how many replicas run as processes of their own, with this environment besides.
	Schedulers  int
	Environment []string
	// Gateway has the workers reach the store through these replicas.
	Gateway bool
	// Worker and Load are the flags of the two roles. Processes is how many processes run jobs; 0
	// is 1.
	Worker, Load string
	Processes    int
	// Away is by how much each round trip to the store is longer.
	Away time.Duration
}

// System is one system, freshly started.
type System struct {
	Redis      *Redis // nil with another store
	Workers    []*measure.Child
	Schedulers []*Scheduler
	Load       *measure.Child
	postgres   *Postgres      // nil with another store
	server     *measure.Child // nil unless the store is Own
	proxy      *away.Proxy
	tokens     *Tokens // nil unless replicas are gateways
	programs   *Programs
	store      []string // flags that name the store
}

// Start starts the workers before the replicas, as a replica that is ready knows every node that
// was there. Workers that need a gateway start behind it. The caller stops the system.
func Start(ctx context.Context, programs *Programs, sh Shape) (_ *System, err error) {
	s := &System{programs: programs}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	if err := s.startStore(ctx, sh); err != nil {
		return nil, err
	}
	workers := func() error { return s.startWorkers(ctx, sh) }
	replicas := func() error { return s.startSchedulers(ctx, sh) }
	first, second := workers, replicas
	if sh.Gateway {
		first, second = replicas, workers
	}
	if err := first(); err != nil {
		return nil, err
	}
	if err := second(); err != nil {
		return nil, err
	}
	s.Load, err = s.StartLoad(ctx, cmp.Or(sh.LoadProgram, sh.Program), sh.Load)
	return s, err
}

func (s *System) startWorkers(ctx context.Context, sh Shape) error {
	to := s.store
	if sh.Gateway {
		to = []string{"-gateway", strings.Join(s.addresses(), ","), "-token", s.tokens.Secret}
	}
	for i := range max(sh.Processes, 1) {
		args := append(append([]string{"worker"}, to...), strings.Fields(sh.Worker)...)
		w, err := measure.StartChild(ctx, fmt.Sprintf("%s worker %d", sh.Program, i+1), s.programs.Command(sh.Program, args...))
		if err != nil {
			return err
		}
		s.Workers = append(s.Workers, w)
	}
	return nil
}

func (s *System) startStore(ctx context.Context, sh Shape) (err error) {
	switch sh.Store {
	case InPostgres:
		if s.postgres, err = StartPostgres(ctx, sh.AOF); err == nil {
			s.store = []string{"-postgres", s.postgres.URL()}
		}
		return err
	case Own:
		return s.startOwn(ctx, sh.Program)
	}
	if s.Redis, err = StartRedis(ctx, sh.AOF); err != nil {
		return err
	}
	url := s.Redis.URL()
	if sh.Away > 0 {
		if s.proxy, err = away.Open(s.Redis.Addr(), sh.Away); err != nil {
			return err
		}
		url = "redis://" + s.proxy.Addr()
	}
	s.store = []string{"-redis", url}
	return nil
}

func (s *System) startOwn(ctx context.Context, program string) error {
	number, err := redisserver.FreePort()
	if err != nil {
		return err
	}
	port := strconv.Itoa(number)
	s.server, err = measure.StartChild(ctx, program+" server", s.programs.Command(program, "server", "-port", port))
	s.store = []string{"-" + program, program + "://127.0.0.1:" + port}
	return err
}

func (s *System) startSchedulers(ctx context.Context, sh Shape) (err error) {
	env := slices.Clone(sh.Environment)
	if sh.Gateway {
		if s.tokens, err = WriteTokens(); err != nil {
			return err
		}
		env = append(env, "FREESLOT_GATEWAY__TOKENS_FILE="+s.tokens.File)
	}
	for i := range sh.Schedulers {
		p, err := StartScheduler(ctx, s.programs.Scheduler, s.store[1], i+1, env...)
		if err != nil {
			return err
		}
		s.Schedulers = append(s.Schedulers, p)
	}
	return nil
}

// StartLoad starts a load generator beside the system's own. The caller ends it.
func (s *System) StartLoad(ctx context.Context, program, flags string) (*measure.Child, error) {
	args := append(append([]string{"load"}, s.store...), strings.Fields(flags)...)
	if len(s.Schedulers) > 0 {
		args = append(args, "-ws", strings.Join(s.addresses(), ","))
	}
	return measure.StartChild(ctx, program+" load", s.programs.Command(program, args...))
}

// addresses are where clients and agents reach the replicas.
func (s *System) addresses() []string {
	out := make([]string, len(s.Schedulers))
	for i, p := range s.Schedulers {
		out[i] = "ws://" + p.Address
	}
	return out
}

// Ask has the system's load generator do one window.
func (s *System) Ask(ctx context.Context, r load.Request) (*load.Figures, error) {
	return Ask(ctx, s.Load, r)
}

// Ask has a load generator do one window. Fields that are not known are let pass: the program may
// be of another commit.
func Ask(ctx context.Context, generator *measure.Child, r load.Request) (*load.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.WarmUpMS+r.MeasureMS)*time.Millisecond+answerLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	answer, err := generator.Ask(ctx, string(line))
	if err != nil {
		return nil, err
	}
	f := new(load.Figures)
	if err := json.Unmarshal([]byte(answer), f); err != nil {
		return nil, fmt.Errorf("%s answered %q: %w", generator.Name, answer, err)
	}
	if f.Error != "" {
		return nil, fmt.Errorf("%s: %s", generator.Name, f.Error)
	}
	return f, nil
}

// CPU is the processor time in seconds of the processes so far, by "load", "replicas", "workers",
// and "redis" or "server".
func (s *System) CPU() (map[string]float64, error) {
	out := make(map[string]float64)
	var errs []error
	add := func(name string, pid int) {
		seconds, err := measure.CPUSeconds(pid)
		out[name] += seconds
		errs = append(errs, err)
	}
	add("load", s.Load.PID())
	for _, w := range s.Workers {
		add("workers", w.PID())
	}
	for _, p := range s.Schedulers {
		add("replicas", p.PID())
	}
	if s.Redis != nil {
		add("redis", s.Redis.PID())
	}
	if s.server != nil {
		add("server", s.server.PID())
	}
	return out, errors.Join(errs...)
}

// RedisStat reads Redis' own counters; of other stores there are none.
func (s *System) RedisStat(ctx context.Context) (measure.RedisStat, error) {
	if s.Redis == nil {
		return measure.RedisStat{}, nil
	}
	return measure.ReadRedisStat(ctx, s.Redis.Client)
}

// Stop ends what was started, the store last.
func (s *System) Stop() error {
	var errs []error
	if s.Load != nil {
		errs = append(errs, s.Load.End())
	}
	for _, w := range s.Workers { // they may take leave by the replicas
		errs = append(errs, w.End())
	}
	for _, p := range s.Schedulers {
		errs = append(errs, p.Stop())
	}
	if s.tokens != nil {
		errs = append(errs, s.tokens.Remove())
	}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Stop())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	if s.server != nil {
		errs = append(errs, s.server.End())
	}
	return errors.Join(errs...)
}
