// Command celery submits jobs to the workers of Celery, which are in worker.py: see bench/load for
// the roles.
//
//	celery load -redis URL
//
// It writes what Celery's own client writes (its message protocol 2, by its Redis transport) and
// reads results from the messages that the result backend publishes. One subscription is for all
// jobs, where that client has one for each.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	// queue is the list of the queue by that name, resultPrefix is before a job's id in its result's
	// key and channel.
	queue        = "celery"
	resultPrefix = "celery-task-meta-"

	// idsOfMessage is how many ids are in a message. Its body comes last: it may contain the same
	// letters.
	idsOfMessage = 4

	call    = `[[%s], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`
	message = `{"headers": {"lang": "py", "task": "noop", "id": "ID", "shadow": null, "eta": null, "expires": null, ` +
		`"group": null, "group_index": null, "retries": 0, "timelimit": [null, null], "root_id": "ID", "parent_id": null, ` +
		`"argsrepr": "", "kwargsrepr": "{}", "origin": "bench", "ignore_result": false}, ` +
		`"properties": {"correlation_id": "ID", "reply_to": "bench", "delivery_mode": 2, "delivery_info": {"exchange": "", ` +
		`"routing_key": "celery"}, "priority": 0, "body_encoding": "base64", "delivery_tag": "ID"}, ` +
		`"content-encoding": "utf-8", "content-type": "application/json", "body": "BODY"}`
)

func main() { os.Exit(load.Main(noWorker, openLoad)) }

func noWorker(context.Context, []string) (func() error, error) {
	return nil, errors.New("worker.py has the worker")
}

type submitter struct {
	client, events rueidis.Client
	loops          sync.WaitGroup
	pending        load.Pending
	last           atomic.Int64
	// message is message with the payload.
	message string
}

func openLoad(ctx context.Context, args []string) (_ load.Submitter, err error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	url := f.String("redis", "", "URL of Redis")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	s := new(submitter)
	s.message = strings.Replace(message, "BODY", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, call, load.Payload())), 1)
	if s.client, err = redisclient.Commands(redisclient.Config{URL: *url, Name: "bench-celery"}); err != nil {
		return nil, err
	}
	if s.events, err = redisclient.Subscriber(redisclient.Config{URL: *url, Name: "bench-celery-results"}); err != nil {
		s.client.Close()
		return nil, err
	}
	stands := make(chan struct{})
	var once sync.Once
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { once.Do(func() { close(stands) }) })
	command := s.events.B().Psubscribe().Pattern(resultPrefix + "*").Build()
	s.loops.Go(func() { _ = s.events.Receive(hooked, command, s.ended) }) // ends as the client is closed
	<-stands
	return s, nil
}

// ended takes the message of a result.
func (s *submitter) ended(m rueidis.PubSubMessage) {
	var r struct{ Status, Result string }
	err := json.Unmarshal([]byte(m.Message), &r)
	switch id := strings.TrimPrefix(m.Channel, resultPrefix); {
	case err != nil:
		s.pending.End(id, load.Outcome{Err: err})
	case r.Status != "SUCCESS":
		s.pending.End(id, load.Outcome{Err: errors.New(r.Status)})
	default:
		s.pending.EndStamp(id, r.Result)
	}
}

// Submit implements load.Submitter.
func (s *submitter) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	ids, messages := make([]string, n), make([]string, n)
	for i := range n {
		ids[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", os.Getpid(), s.last.Add(1))
		messages[i] = strings.Replace(s.message, "ID", ids[i], idsOfMessage)
		s.pending.Add(ids[i], func(o load.Outcome) { done(i, o) })
	}
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	if err := s.client.Do(ctx, s.client.B().Lpush().Key(queue).Element(messages...).Build()).Error(); err != nil {
		for _, id := range ids {
			s.pending.End(id, load.Outcome{Err: err})
		}
	}
}

// Close implements load.Submitter.
func (s *submitter) Close() error {
	s.events.Close()
	s.loops.Wait()
	s.client.Close()
	return nil
}
