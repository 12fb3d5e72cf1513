package embed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/registry"
	"github.com/freeslot/freeslot/worker"
)

// Submit jobs from the process that holds the replica, and wait for their results.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	redisURL, stop := startFleet(ctx)
	defer stop()

	r, err := embed.New(embed.Config{RedisURL: redisURL, Tenant: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer r.Stop(ctx)

	job, err := r.Submit(ctx, freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"stressed"`)})
	if err != nil {
		log.Fatal(err)
	}
	status, err := job.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, string(status.Result))

	results, err := r.SubmitBatch(ctx, []freeslot.Job{{Service: "reverse", Payload: json.RawMessage(`"drawer"`)}, {Service: "reverse", TimeoutMS: -1}})
	if err != nil {
		log.Fatal(err)
	}
	for _, one := range results { // each is accepted or refused by itself
		if one.Err != nil {
			fmt.Println(freeslot.CodeOf(one.Err))
			continue
		}
		status, err := one.Handle.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(status.Result))
	}
	// Output:
	// succeeded "desserts"
	// "reward"
	// invalid_argument
}

// A process that may die before it knows a job's id submits with a key. After its restart the same
// submit makes no second job.
func ExampleReplica_Submit() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	redisURL, stop := startFleet(ctx)
	defer stop()

	job := freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"diaper"`), IdempotencyKey: "order-17"}
	var ids []string
	for range 2 { // the process, and the one after its restart
		r, err := embed.New(embed.Config{RedisURL: redisURL})
		if err != nil {
			log.Fatal(err)
		}
		if err := r.Start(ctx); err != nil {
			log.Fatal(err)
		}
		submitted, err := r.Submit(ctx, job)
		if err != nil {
			log.Fatal(err)
		}
		status, err := submitted.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(status.Result))
		ids = append(ids, submitted.ID())
		if err := r.Stop(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(ids[0] == ids[1])
	// Output:
	// "repaid"
	// "repaid"
	// true
}

// A check of one's own: registrations ask for it by its name, and this replica makes it.
func ExampleConfig_probes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	redisURL, stop := startFleet(ctx)
	defer stop()
	server := startGreeter("closed for today")
	defer server.Close()

	// By default no network may be checked.
	file, err := os.CreateTemp("", "scheduler-*.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString("registry: {checks: {networks: [127.0.0.0/8]}}"); err != nil {
		log.Fatal(err)
	}

	greets := func(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), address, path string) error {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(deadline)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && strings.TrimSpace(line) != path {
			err = fmt.Errorf("it says %q, expected %q", strings.TrimSpace(line), path)
		}
		return err
	}
	r, err := embed.New(embed.Config{RedisURL: redisURL, ConfigFile: file.Name(), Probes: map[string]embed.Probe{"greeting": greets}})
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer r.Stop(ctx)

	n, err := registry.NewNaming(registry.NamingOptions{Options: registry.Options{RedisURL: redisURL, StopPause: -1}})
	if err != nil {
		log.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer n.Stop(ctx)
	failing := make(chan string, 100)
	if _, err := n.Subscribe("greeter", func(l *registry.List) {
		for _, in := range l.Instances {
			failing <- in.Failing
		}
	}); err != nil {
		log.Fatal(err)
	}
	check := &registry.Check{Kind: "greeting", Path: "hello", Interval: registry.Milliseconds(time.Second), Fall: 1}
	port := server.Addr().(*net.TCPAddr).Port
	if err := n.Register(ctx, registry.Registration{Service: "greeter", Host: "127.0.0.1", Port: port, Check: check}); err != nil {
		log.Fatal(err)
	}
	for why := range failing {
		if why != "" {
			fmt.Println(why)
			break
		}
	}
	// Output:
	// it says "closed for today", expected "hello"
}

// startGreeter starts a server that says one line to each client.
func startGreeter(line string) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(conn, line)
			_ = conn.Close()
		}
	}()
	return listener
}

// startFleet starts a Redis, and a node that reverses texts.
func startFleet(ctx context.Context) (redisURL string, stop func()) {
	redis := redisserver.New(redisserver.Config{})
	if err := redis.Start(ctx); err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(worker.Config{RedisURL: redis.URL(), Node: freeslot.Node{ID: "node-1", MaxConcurrency: 10}})
	if err != nil {
		log.Fatal(err)
	}
	w.Handle("reverse", func(_ context.Context, job *worker.Job) (any, error) {
		text := slices.Clone(job.Payload)
		slices.Reverse(text)
		return text, nil
	})
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	return redis.URL(), func() {
		_ = w.Stop(ctx)
		_ = redis.Stop(ctx)
	}
}
