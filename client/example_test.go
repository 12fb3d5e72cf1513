package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

// Submit a job and wait for its result.
func ExampleClient_Run() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, replicaURL(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	status, err := c.Run(ctx, freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"stressed"`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State, string(status.Result))
	// Output: succeeded "desserts"
}

// Submit a job, see where it runs, and cancel it.
func ExampleClient_Submit() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, replicaURL(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	job, err := c.Submit(ctx, freeslot.Job{Service: "sleep"})
	if err != nil {
		log.Fatal(err)
	}
	<-job.Assigned()
	fmt.Println("runs on", job.Assignment().Node)

	if _, err := c.Cancel(ctx, job.ID()); err != nil {
		log.Fatal(err)
	}
	status, err := job.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.State)
	// Output:
	// runs on node-1
	// cancelled
}

// Submit many jobs at once. Each is accepted or refused by itself.
func ExampleClient_SubmitBatch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, replicaURL(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	results, err := c.SubmitBatch(ctx, []freeslot.Job{
		{Service: "reverse", Payload: json.RawMessage(`"drawer"`)},
		{Service: "unheard-of"},
		{Service: "reverse", Payload: json.RawMessage(`"repaid"`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			fmt.Println(freeslot.CodeOf(r.Err))
			continue
		}
		status, err := r.Handle.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(status.Result))
	}
	// Output:
	// "reward"
	// no_matching_node
	// "diaper"
}

// Get the result of a job that another process submitted.
func ExampleClient_Attach() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	submitter, err := client.Dial(ctx, replicaURL(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	job, err := submitter.Submit(ctx, freeslot.Job{Service: "reverse", Payload: json.RawMessage(`"lived"`)})
	if err != nil {
		log.Fatal(err)
	}
	_ = submitter.Close() // the job goes on

	c, err := client.Dial(ctx, replicaURL(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	again, err := c.Attach(ctx, job.ID())
	if err != nil {
		log.Fatal(err)
	}
	status, err := again.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(status.Result))
	// Output: "devil"
}
