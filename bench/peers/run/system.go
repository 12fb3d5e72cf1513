package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	aofOff = "off"
	// redisClients is how many connections a server must take: a node has one of its own.
	redisClients = "15000"
	// answerLimit is how long a load may take beyond its window: what is in flight must end.
	answerLimit = 2 * time.Minute
)

// thisProcess stands in a worker's flags for which process it is, from 0.
const thisProcess = "{process}"

// shape is what a system is made of.
type shape struct {
	entry   *entry
	setting result.Setting
	aof     string
	away    time.Duration
	// workersAway says that the workers put themselves at that distance, by the flag -away.
	workersAway bool
}

// system is one peer, freshly started, with its store.
type system struct {
	redis      *redisserver.Server // nil on Postgres
	stats      rueidis.Client      // to Redis, without the distance
	postgres   *postgres           // nil on Redis
	proxy      *away.Proxy         // nil without a distance
	workers    []*measure.Child
	schedulers []*measure.Process
	load       *measure.Child
}

// start starts the workers before the replicas: a replica that is ready knows every node that was there.
func (b *bench) start(ctx context.Context, sh shape) (_ *system, err error) {
	s := new(system)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	flags, err := s.startStore(ctx, sh)
	if err != nil {
		return nil, err
	}
	direct := flags
	if sh.workersAway && s.redis != nil {
		direct = []string{"-redis", s.redis.URL(), "-away", sh.away.String()}
	}
	for i := range max(sh.setting.Processes, 1) {
		args := append(append([]string{"worker"}, direct...), strings.Fields(strings.ReplaceAll(sh.setting.Worker, thisProcess, strconv.Itoa(i)))...)
		w, err := measure.StartChild(ctx, fmt.Sprintf("%s worker %d", sh.entry.program, i+1), b.command(sh.entry.program, args...), load.Ready)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	args := append(append([]string{"load"}, flags...), strings.Fields(sh.setting.Load)...)
	if sh.entry.schedulers > 0 {
		urls, err := b.startSchedulers(ctx, s, sh, flags[1])
		if err != nil {
			return nil, err
		}
		args = append(args, "-ws", strings.Join(urls, ","))
	}
	s.load, err = measure.StartChild(ctx, sh.entry.program+" load", b.command(sh.entry.program, args...), load.Ready)
	return s, err
}

// startStore returns the flags that name the store.
func (s *system) startStore(ctx context.Context, sh shape) ([]string, error) {
	if sh.entry.store == onPostgres {
		var err error
		s.postgres, err = startPostgres(ctx, sh.aof)
		if err != nil {
			return nil, err
		}
		return []string{"-postgres", s.postgres.url}, nil
	}
	server := redisserver.New(redisserver.Config{AppendOnly: sh.aof != aofOff, AppendFsync: fsyncOf(sh.aof), ExtraArgs: []string{"--maxclients", redisClients}})
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	s.redis = server
	var err error
	if s.stats, err = redisclient.Commands(redisclient.Config{URL: server.URL(), Name: "bench-stats"}); err != nil {
		return nil, err
	}
	url := server.URL()
	if sh.away > 0 {
		if s.proxy, err = away.Open(server.Addr(), sh.away); err != nil {
			return nil, err
		}
		url = "redis://" + s.proxy.Addr()
	}
	return []string{"-redis", url}, nil
}

func fsyncOf(aof string) string {
	if aof == aofOff {
		return ""
	}
	return aof
}

func (b *bench) startSchedulers(ctx context.Context, s *system, sh shape, redisURL string) ([]string, error) {
	var urls []string
	for i := range sh.entry.schedulers {
		port, err := redisserver.FreePort()
		if err != nil {
			return nil, err
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		cmd := exec.Command(b.scheduler, "serve")
		cmd.Env = measure.PlainEnv("FREESLOT_LISTEN="+address, "FREESLOT_REPLICA_ID=bench-"+strconv.Itoa(i+1),
			"FREESLOT_REDIS__URL="+redisURL, "FREESLOT_LOG__LEVEL=warn")
		p, err := measure.StartProcess("replica "+strconv.Itoa(i+1), cmd)
		if err != nil {
			return nil, err
		}
		s.schedulers = append(s.schedulers, p)
		if err := p.AwaitOK(ctx, "http://"+address+"/readyz"); err != nil {
			return nil, err
		}
		urls = append(urls, "ws://"+address)
	}
	return urls, nil
}

// ask has the load generator do one window.
func (s *system) ask(ctx context.Context, r load.Request) (*load.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.WarmUpMS+r.MeasureMS)*time.Millisecond+answerLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	answer, err := s.load.Ask(ctx, string(line))
	if err != nil {
		return nil, err
	}
	f := new(load.Figures)
	if err := measure.Decode(s.load.Name, []byte(answer), f); err != nil {
		return nil, err
	}
	if f.Error != "" {
		return nil, fmt.Errorf("%s: %s", s.load.Name, f.Error)
	}
	return f, nil
}

// stop ends what was started, the store last.
func (s *system) stop() error {
	var errs []error
	if s.load != nil {
		errs = append(errs, s.load.End())
	}
	for _, p := range s.schedulers {
		errs = append(errs, p.Stop())
	}
	for _, w := range s.workers {
		errs = append(errs, w.End())
	}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.stats != nil {
		s.stats.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	if s.redis != nil {
		errs = append(errs, s.redis.Stop(ctx))
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.stop())
	}
	return errors.Join(errs...)
}

// cpu reads the processor time of every process, by name.
func (s *system) cpu() (map[string]float64, error) {
	out := make(map[string]float64)
	add := func(name string, pid int) error {
		seconds, err := measure.CPUSeconds(pid)
		out[name] += seconds
		return err
	}
	errs := []error{add("load", s.load.PID())}
	for _, w := range s.workers {
		errs = append(errs, add("workers", w.PID()))
	}
	for _, p := range s.schedulers {
		errs = append(errs, add("replicas", p.Cmd.Process.Pid))
	}
	if s.redis != nil {
		errs = append(errs, add("redis", s.redis.PID()))
	}
	return out, errors.Join(errs...)
}
