package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/worker"
)

// startCallers register nodes side by side.
const startCallers = 16

func startWorker(ctx context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	var to worker.Config
	f.StringVar(&to.RedisURL, "redis", "", "URL of Redis")
	f.StringVar(&to.Gateway, "gateway", "", "URLs of replicas in place of Redis, separated by commas")
	f.StringVar(&to.Token, "token", "", "token for the gateway")
	nodes := f.Int("nodes", 4, "nodes, all in this process")
	slots := f.Int("slots", 1024, "slots of each node")
	lean := f.Bool("lean", false, "one connection a node, and what they share")
	mean := f.Duration("mean", 0, "mean time that a job takes, exponentially distributed; 0: it ends at once, or as its payload says")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if *lean {
		return startLean(ctx, to.RedisURL, *nodes, *slots)
	}
	return startFleet(ctx, to, *nodes, *slots, handler(*mean))
}

// nodeID has the process, as several may run nodes of one system.
func nodeID(i int) string { return fmt.Sprintf("bench-%d-%d", os.Getpid(), i+1) }

// startFleet starts nodes that differ in their ids.
func startFleet(ctx context.Context, to worker.Config, nodes, slots int, handle worker.HandlerFunc) (func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	fleet := make([]*worker.Worker, nodes)
	err := measure.InParallel(startCallers, nodes, func(i int) (err error) {
		fleet[i], err = startNode(ctx, to, freeslot.Node{ID: nodeID(i), MaxConcurrency: slots}, handle)
		return err
	})
	stop := func() error { return stopFleet(fleet) }
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func startNode(ctx context.Context, cfg worker.Config, profile freeslot.Node, handle worker.HandlerFunc) (*worker.Worker, error) {
	cfg.Node = profile
	w, err := worker.New(cfg)
	if err != nil {
		return nil, err
	}
	w.Handle(benchService, handle)
	return w, w.Start(ctx)
}

// handler answers with the moment of its start. A payload that is a number is for how many
// microseconds it is to take besides.
func handler(mean time.Duration) worker.HandlerFunc {
	return func(ctx context.Context, job *worker.Job) (any, error) {
		stamp := load.Stamp()
		if err := load.Work(ctx, mean); err != nil {
			return nil, err
		}
		if len(job.Payload) > 0 && job.Payload[0] != '"' {
			us, err := strconv.ParseInt(string(job.Payload), 10, 64)
			if err != nil {
				return nil, err
			}
			if err := measure.SleepUntil(ctx, time.Now().Add(time.Duration(us)*time.Microsecond)); err != nil {
				return nil, err
			}
		}
		return stamp, nil
	}
}

// stopFleet stops all nodes side by side: each may have to wait for its last read of Redis.
func stopFleet(fleet []*worker.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return measure.InParallel(len(fleet), len(fleet), func(i int) error {
		if fleet[i] == nil {
			return nil
		}
		return fleet[i].Stop(ctx)
	})
}
