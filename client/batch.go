package client

import (
	"context"
	"strconv"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// batchCalls is the number of frames of one SubmitBatch that are under way at a time.
const batchCalls = 4

// SubmitBatch submits jobs, in as few frames as the replica's limits allow. It returns when each
// job is accepted or refused, in the order of jobs; see Submit for the errors of single jobs. It
// returns an error only if nothing was sent: no jobs, no connection before ctx ended, or ErrClosed.
func (c *Client) SubmitBatch(ctx context.Context, jobs []freeslot.Job) ([]Submitted, error) {
	if len(jobs) == 0 {
		return nil, freeslot.Invalid("jobs", "is empty")
	}
	var welcome wire.Welcome
	if err := c.connected(ctx, func(conn *connection) { welcome = conn.welcome }); err != nil {
		return nil, err
	}
	results := make([]Submitted, len(jobs))
	places := make(chan struct{}, batchCalls)
	var calls sync.WaitGroup
	for _, part := range split(jobs, results, &welcome) {
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
	answer := c.do(ctx, func() *call { return newSubmit(spans, frame...) }, func(id string) []byte {
		return wire.AppendSubmitBatch(nil, id, frame)
	})
	for k, i := range part {
		results[i] = answer.submitted[k]
		if err := results[i].Err; err != nil {
			spans[k].end("", freeslot.JobStatus{}, err)
		}
	}
}

// split makes frames of the valid jobs, and puts the errors of the others into results. In a frame,
// one bad job would make the replica refuse all jobs.
func split(jobs []freeslot.Job, results []Submitted, limits *wire.Welcome) [][]int {
	const envelope = 128 // bytes of the frame itself
	var parts [][]int
	var part []int
	size := envelope
	for i := range jobs {
		if err := checkJob(&jobs[i], i, limits.MaxPayloadBytes); err != nil {
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

func checkJob(job *freeslot.Job, i, maxPayloadBytes int) error {
	path := "jobs[" + strconv.Itoa(i) + "]"
	if maxPayloadBytes > 0 {
		if err := wire.CheckPayload(path, job, maxPayloadBytes); err != nil {
			return err
		}
	}
	return job.Validate(path)
}

// frameBytes returns an upper bound of the bytes that a valid job takes in a frame. Only some of
// its texts can hold characters that are escaped; at worst these texts double. A trace context may
// be added.
func frameBytes(job *freeslot.Job) int {
	const (
		names = 512 // field names, punctuation, numbers, traceparent
		rule  = 48  // names and punctuation of a label rule, and its operator
	)
	r := &job.Requirement
	n := names + len(job.Service) + len(job.Payload) + 2*(len(job.AffinityKey)+len(job.IdempotencyKey)+
		len(job.ConcurrencyKey))
	n += len(r.Pool) + len(r.PreferredPool) + len(r.SourceLanguage) + len(r.TargetLanguage)
	for _, s := range r.Services {
		n += 2*len(s) + 3
	}
	for _, name := range r.Features {
		n += len(name) + 3
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
