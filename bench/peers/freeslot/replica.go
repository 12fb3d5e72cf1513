package main

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/embed"
)

// maxOutstanding is more than any load has in flight.
const maxOutstanding = 1 << 20

// inProcess submits to a replica in this process.
type inProcess struct {
	*yard
	replica *embed.Replica
	job     freeslot.Job
}

func openInProcess(ctx context.Context, cfg embed.Config, s *inProcess) (_ load.Submitter, err error) {
	if s.replica, err = embed.New(cfg); err != nil {
		return nil, err
	}
	return s, s.replica.Start(ctx)
}

// Submit implements load.Submitter. One call of the replica takes all n jobs.
func (s *inProcess) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	if n == 1 {
		h, err := s.replica.Submit(ctx, s.job)
		if err != nil {
			done(0, load.Outcome{Err: reason(err)})
			return
		}
		wait(ctx, h, func(o load.Outcome) { done(0, o) })
		return
	}
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = s.job
	}
	submitted, err := s.replica.SubmitBatch(ctx, jobs)
	go func() { // load waits for its jobs
		for i := range n {
			switch {
			case err != nil:
				done(i, load.Outcome{Err: reason(err)})
			case submitted[i].Err != nil:
				done(i, load.Outcome{Err: reason(submitted[i].Err)})
			default: // a job counts as ended no sooner than those before it
				wait(ctx, submitted[i].Handle, func(o load.Outcome) { done(i, o) })
			}
		}
	}()
}

// Close implements load.Submitter.
func (s *inProcess) Close() error {
	s.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return s.replica.Stop(ctx)
}
