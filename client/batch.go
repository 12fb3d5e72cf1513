package client

import (
	"context"
	"strconv"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// batchCalls is how many frames of one SubmitBatch are under way at a time.
const batchCalls = 4

// SubmitBatch submits jobs, in as few frames as the replica's limits allow, and
// returns when each is accepted or refused, in the order of jobs; see Submit for
// the errors of single jobs. The error is not nil only when nothing was sent: no
// jobs, no connection before ctx ended, or ErrClosed.
func (c *Client) SubmitBatch(ctx context.Context, jobs []freeslot.Job) ([]Submitted, error) {
	if len(jobs) == 0 {
		return nil, freeslot.Invalid("jobs", "is empty")
	}
	limits, err := c.limits(ctx)
	if err != nil {
		return nil, err
	}
	results := make([]Submitted, len(jobs))
	places := make(chan struct{}, batchCalls)
	var calls sync.WaitGroup
	for _, part := range split(jobs, results, limits) {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			c.submitPart(ctx, jobs, part, results)
		})
	}
	calls.Wait()
	return results, nil
}

// submitPart submits the jobs at the given places of a batch as one frame.
func (c *Client) submitPart(ctx context.Context, jobs []freeslot.Job, part []int, results []Submitted) {
	frame := make([]freeslot.Job, len(part))
	spans := make([]jobSpan, len(part))
	for k, i := range part {
		frame[k] = jobs[i]
		spans[k] = c.tracer.start(ctx, &frame[k])
	}
	answer := c.do(ctx, func() *call { return newSubmit(spans) }, func(id string) []byte {
		return wire.AppendSubmitBatch(nil, id, frame)
	})
	for k, i := range part {
		results[i] = answer.submitted[k]
		if err := results[i].Err; err != nil {
			spans[k].end("", freeslot.JobStatus{}, err)
		}
	}
}

// limits are those of the replica that the client is connected to.
func (c *Client) limits(ctx context.Context) (wire.Limits, error) {
	for {
		c.mu.Lock()
		l, ready, closed := c.current, c.ready, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return wire.Limits{}, ErrClosed
		case l != nil:
			w := &l.welcome
			return wire.Limits{MaxPayloadBytes: w.MaxPayloadBytes, MaxBatch: w.MaxBatch, MaxFrameBytes: w.MaxFrameBytes}, nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return wire.Limits{}, c.notConnected(ctx)
		}
	}
}

// split makes frames of the good jobs, and puts the errors of the others into
// results. One bad job would otherwise spoil its whole frame.
func split(jobs []freeslot.Job, results []Submitted, limits wire.Limits) [][]int {
	const envelope = 128 // of the frame itself
	var parts [][]int
	var part []int
	size := envelope
	for i := range jobs {
		if err := checkJob(&jobs[i], i, limits); err != nil {
			results[i].Err = err
			continue
		}
		n := frameBytes(&jobs[i])
		if len(part) > 0 && (len(part) == limits.MaxBatch || limits.MaxFrameBytes > 0 && size+n > limits.MaxFrameBytes) {
			parts, part, size = append(parts, part), nil, envelope
		}
		part = append(part, i)
		size += n
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

func checkJob(job *freeslot.Job, i int, limits wire.Limits) error {
	path := "jobs[" + strconv.Itoa(i) + "]"
	if limits.MaxPayloadBytes > 0 {
		if err := wire.CheckPayload(path, job, limits.MaxPayloadBytes); err != nil {
			return err
		}
	}
	return job.Validate(path)
}

// frameBytes is no less than what a valid job takes in a frame. Of its texts only some
// can hold characters that are escaped, at worst doubled; the trace context may be added
// to it.
func frameBytes(job *freeslot.Job) int {
	const (
		names = 512 // field names, punctuation, numbers, traceparent
		rule  = 48  // names and punctuation of a label rule, and its operator
	)
	r := &job.Requirement
	n := names + len(job.Service) + len(job.Payload) + 2*(len(job.AffinityKey)+len(job.IdempotencyKey)+len(job.ConcurrencyKey))
	n += len(r.Pool) + len(r.PreferredPool) + len(r.SourceLanguage) + len(r.TargetLanguage)
	for _, s := range r.Services {
		n += 2*len(s) + 3
	}
	for name, value := range r.Labels {
		n += len(name) + 2*len(value) + 6
	}
	for i := range r.LabelRules {
		n += rule + len(r.LabelRules[i].Label)
		for _, value := range r.LabelRules[i].Values {
			n += 2*len(value) + 3
		}
	}
	return n
}
