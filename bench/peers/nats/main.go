// Command nats is NATS JetStream as a peer of the benchmark: see bench/load for the roles. Its
// server is a process of its own.
//
//	nats server -port 4222
//	nats worker -nats URL -workers 2 -concurrency 512 -fetch 256
//	nats load -nats URL
//
// A job is a message of a work-queue stream in memory, and its publish is acknowledged. All workers
// pull from one durable consumer, many messages a request. A handler's result is a message of a
// second stream in memory; the job is acknowledged once that has been. The submitter listens to the
// subject of its results, which it may hear of before the stream has kept them: that is to
// JetStream's advantage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
)

const (
	jobs = "jobs"
	// results is what the subjects of results begin with. A submitter's name and a job's number
	// follow.
	results  = "results."
	consumer = "workers"
	// answerTo is the header of a job that names the subject of its result.
	answerTo = "Answer-To"
	// kept is how long results are kept: longer than a run.
	kept      = time.Hour
	maxMemory = 8 << 30
	// publishLimit is how long a publish may take until it is acknowledged.
	publishLimit = 30 * time.Second
	// mostPending bounds publishes of one connection that are not acknowledged; mostPulls bounds
	// the requests of all workers that wait for jobs.
	mostPending = 1 << 14
	mostPulls   = 1 << 13
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		os.Exit(load.MainServer(startServer))
	}
	os.Exit(load.Main(startWorker, openLoad))
}

func startServer(ctx context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("server", flag.ContinueOnError)
	port := f.Int("port", server.DEFAULT_PORT, "port on which it listens")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "freeslot-nats-")
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: *port, NoLog: true, NoSigs: true,
		JetStream: true, JetStreamMaxMemory: maxMemory, StoreDir: folder,
	})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return os.RemoveAll(folder)
	}
	s.Start()
	if !s.ReadyForConnections(measure.StartLimit) {
		return nil, errors.Join(fmt.Errorf("the server is not ready within %s", measure.StartLimit), stop())
	}
	if err := makeStreams(ctx, s.ClientURL()); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func makeStreams(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	conn, js, err := connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: jobs, Subjects: []string{jobs}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "results", Subjects: []string{results + ">"}, MaxAge: kept, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return err
	}
	_, err = js.CreateConsumer(ctx, jobs, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxWaiting: mostPulls,
	})
	return err
}

// connect returns a connection and its way to JetStream; the caller closes the connection.
func connect(url string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(mostPending), jetstream.WithPublishAsyncTimeout(publishLimit))
	if err != nil {
		conn.Close()
	}
	return conn, js, err
}

// acknowledged waits until a publish has been kept.
func acknowledged(f jetstream.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err(): // comes at the latest after publishLimit
		return err
	}
}
