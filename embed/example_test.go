package embed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
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
