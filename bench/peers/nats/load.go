package main

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/freeslot/freeslot/bench/load"
)

// submitter publishes jobs and listens for their results.
type submitter struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	answers string // subject of its results, but for the job's number
	payload []byte
	next    atomic.Int64
	waiting load.Pending
}

func openLoad(_ context.Context, args []string) (load.Submitter, error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	url := f.String("nats", "", "URL of the server")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	conn, js, err := connect(*url)
	if err != nil {
		return nil, err
	}
	s := &submitter{conn: conn, js: js, answers: results + nats.NewInbox() + ".", payload: load.Payload()}
	_, err = conn.Subscribe(s.answers+"*", func(m *nats.Msg) {
		s.waiting.EndStamp(strings.TrimPrefix(m.Subject, s.answers), string(m.Data))
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Submit implements load.Submitter. All n jobs are published before it waits for the first
// acknowledgement.
func (s *submitter) Submit(_ context.Context, n int, done func(int, load.Outcome)) {
	ids, published := make([]string, n), make([]jetstream.PubAckFuture, n)
	for i := range n {
		ids[i] = strconv.FormatInt(s.next.Add(1), 10)
		s.waiting.Add(ids[i], func(o load.Outcome) { done(i, o) })
		var err error
		published[i], err = s.js.PublishMsgAsync(&nats.Msg{Subject: jobs, Data: s.payload, Header: nats.Header{answerTo: {s.answers + ids[i]}}})
		if err != nil {
			s.waiting.End(ids[i], load.Outcome{Err: err})
		}
	}
	for i, p := range published {
		if p == nil {
			continue
		}
		if err := acknowledged(p); err != nil {
			s.waiting.End(ids[i], load.Outcome{Err: err})
		}
	}
}

// Close implements load.Submitter.
func (s *submitter) Close() error {
	s.conn.Close() // ends the subscription
	return nil
}
