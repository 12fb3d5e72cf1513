// Program canary runs two nodes with two versions of a model, and asks the model for many users.
// The scheduler's chain of rules decides who gets which version; the README has the steps.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/worker"
)

const (
	service = "model"
	// startLimit bounds how long a submit waits for the nodes.
	startLimit = 30 * time.Second
	retryPause = 20 * time.Millisecond
	stopLimit  = 10 * time.Second
	slots      = 8
)

func main() {
	redis := flag.String("redis", "redis://127.0.0.1:7481", "URL of the scheduler's Redis")
	server := flag.String("server", "http://127.0.0.1:7480", "URL of the scheduler")
	users := flag.Int("users", 1000, "how many users ask the model: user-1, user-2 and so on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *redis, *server, *users); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, redis, server string, users int) (err error) {
	for _, version := range []string{"v1", "v2"} {
		w, err := node(redis, version)
		if err != nil {
			return err
		}
		if err := w.Start(ctx); err != nil {
			return fmt.Errorf("start the node of %s: %w", version, err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
			defer cancel()
			err = errors.Join(err, w.Stop(ctx))
		}()
	}
	c, err := client.Dial(ctx, server, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return ask(ctx, out, c, users)
}

// node makes a node that serves one version of the model, in a pool of its own.
func node(redis, version string) (*worker.Worker, error) {
	w, err := worker.New(worker.Config{RedisURL: redis, Node: freeslot.Node{
		ID: "model-" + version, MaxConcurrency: slots, Pools: []string{"model-" + version},
		Services: []freeslot.Service{{Name: service, Version: strings.TrimPrefix(version, "v") + ".0.0"}},
	}})
	if err != nil {
		return nil, err
	}
	w.Handle(service, func(context.Context, *worker.Job) (any, error) { return version, nil })
	return w, nil
}

// ask asks the model once for each user. All ask for the pool of v1; the chain decides who gets v2.
func ask(ctx context.Context, out io.Writer, c *client.Client, users int) error {
	got, jobs := make(map[string][]string), make(map[string]string) // users, and the last job, by version
	for i := range users {
		user := fmt.Sprintf("user-%d", i+1)
		job, err := submit(ctx, c, freeslot.Job{
			Service: service, AffinityKey: user, Requirement: freeslot.Requirement{Pool: "model-v1"},
		})
		if err != nil {
			return fmt.Errorf("ask for %s: %w", user, err)
		}
		status, err := job.Wait(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", user, err)
		}
		var version string
		if err := json.Unmarshal(status.Result, &version); err != nil {
			return fmt.Errorf("%s got %s: %w", user, status.State, err)
		}
		got[version], jobs[version] = append(got[version], user), job.ID()
	}
	for _, version := range slices.Sorted(maps.Keys(got)) {
		all := got[version]
		if _, err := fmt.Fprintf(out, "%s answers %d of %d users, such as %s; the last job is %s\n", version, len(all), users,
			strings.Join(all[:min(3, len(all))], ", "), jobs[version]); err != nil {
			return err
		}
	}
	return nil
}

// submit tries again while the scheduler has not heard of the nodes, which have just started.
func submit(ctx context.Context, c *client.Client, job freeslot.Job) (*client.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		h, err := c.Submit(ctx, job)
		if code := freeslot.CodeOf(err); code != freeslot.CodeNoMatchingNode && code != freeslot.CodeUnavailable {
			return h, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}
