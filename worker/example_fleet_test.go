package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

// exampleFleet runs a Redis and as much of a scheduler as the examples need: submit
// places a job on node-1 and waits for its end.
func exampleFleet() (redisURL string, submit func(service, payload string) string, done func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	redis := redisserver.New(redisserver.Config{})
	must(redis.Start(ctx))
	client, err := redisclient.Commands(redisclient.Config{URL: redis.URL()})
	must(err)
	c, err := cell.New(cell.Config{}, client, zap.NewNop(), nil)
	must(errors.Join(err, c.Start(ctx), c.OpenReplies(ctx, "replica-1")))

	last := ""
	submit = func(service, payload string) string {
		s := cell.Submission{
			JobID: cell.NewJobID(0), Tenant: "default", Candidates: []string{"node-1"}, ReplyTo: "replica-1",
			Job: &freeslot.Job{Service: service, Payload: json.RawMessage(payload)},
		}
		for assigned := false; !assigned; { // until the node has registered
			p, err := c.Submit(ctx, s)
			must(err)
			assigned = p.Assigned
		}
		for {
			replies, err := c.Replies(ctx, "replica-1", last, time.Second, 10)
			must(err)
			for _, r := range replies {
				last = r.ID
				switch {
				case r.Status.ID != s.JobID:
				case r.Status.Error != nil:
					return string(r.Status.State) + " " + r.Status.Error.Error()
				default:
					return string(r.Status.State) + " " + string(r.Status.Result)
				}
			}
		}
	}
	return redis.URL(), submit, func() {
		must(c.Stop(ctx))
		client.Close()
		must(redis.Stop(ctx))
		cancel()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
