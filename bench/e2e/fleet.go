package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/worker"
)

const (
	// fleetMode is the hidden first argument that makes this program the fleet.
	fleetMode = "fleet-of-nodes"
	// fleetReady is the line that the fleet prints when every node is registered.
	fleetReady = "ready"
	// benchService is what the nodes run: nothing.
	benchService = "noop"
)

// runFleet is the hidden mode: redis URL, number of nodes, slots of each. It ends when standard input
// does, so that a parent which was killed does not leave it behind.
func runFleet(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s is for this program's own use", fleetMode)
	}
	nodes, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	slots, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StartLimit)
	defer cancel()
	var fleet []*worker.Worker
	for i := range nodes {
		w, err := startNode(ctx, args[0], i, slots)
		if err != nil {
			return errors.Join(err, stopFleet(fleet))
		}
		fleet = append(fleet, w)
	}
	fmt.Println(fleetReady)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, stopFleet(fleet))
}

func startNode(ctx context.Context, redisURL string, i, slots int) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{
		RedisURL: redisURL,
		Node:     freeslot.Node{ID: "bench-" + strconv.Itoa(i+1), MaxConcurrency: slots},
	})
	if err != nil {
		return nil, err
	}
	w.Handle(benchService, func(context.Context, *worker.Job) (any, error) { return nil, nil })
	return w, w.Start(ctx)
}

// stopFleet stops all nodes side by side: each may have to wait for its last read of Redis.
func stopFleet(fleet []*worker.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	errs := make([]error, len(fleet))
	var stops sync.WaitGroup
	for i, w := range fleet {
		stops.Go(func() { errs[i] = w.Stop(ctx) })
	}
	stops.Wait()
	return errors.Join(errs...)
}
