package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// call sends a request and waits for its answer. If the connection ends meanwhile, it goes on with
// the next one: repeating is harmless. It returns the errors of roundTrip, ErrNotSent if no
// connection came before ctx ended, and ErrSuperseded or ErrStopped if none will come.
func (s *Store) call(ctx context.Context, req *frame.Request) (*pendingCall, error) {
	for sent := false; ; sent = true {
		conn, err := s.connection(ctx)
		if err != nil {
			if sent && errors.Is(err, cell.ErrNotSent) {
				return nil, fmt.Errorf("no answer to %s: %w", req.Type, ctx.Err())
			}
			return nil, err
		}
		call, err := conn.roundTrip(ctx, req)
		if !errors.Is(err, errConnectionLost) || ctx.Err() != nil {
			return call, err
		}
	}
}

// Register makes the answer's heartbeat limit the gateway's, whatever the configuration says.
func (s *Store) Register(ctx context.Context, node freeslot.Node, _ cell.Epoch) (cell.Registration, error) {
	s.mu.Lock()
	s.queueLimit = max(s.queueLimit, 2*node.MaxConcurrency+queueSpare)
	req := &frame.Request{Type: frame.TypeRegister, Profile: &node, Replaces: s.replaces}
	s.mu.Unlock()
	call, err := s.call(ctx, req)
	if err != nil {
		return cell.Registration{}, err
	}
	s.mu.Lock()
	s.registered, s.replaces = true, s.cfg.Epoch
	s.mu.Unlock()
	s.cfg.Beat() // the gateway sends no jobs before a heartbeat
	return cell.Registration{Lost: call.answer.Lost, HeartbeatLimit: call.conn.limit()}, nil
}

// Heartbeat makes the node look for another gateway if it is refused or not answered in time.
func (s *Store) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	req := frame.Request{
		Type: frame.TypeHeartbeat, Status: hb.Status, Running: frameAttempts(hb.Running), Resources: hb.Resources,
		Now: hb.Now,
	}
	s.mu.Lock()
	s.lastBeat = req
	s.mu.Unlock()
	call, err := s.call(ctx, &req)
	if err != nil {
		return cell.HeartbeatReply{}, err
	}
	for {
		s.mu.Lock()
		done := s.done
		s.mu.Unlock()
		if done >= call.arrived {
			break
		}
		select {
		case <-s.settled:
		case <-ctx.Done():
			return cell.HeartbeatReply{}, fmt.Errorf("the deliveries before a heartbeat were not taken in: %w", ctx.Err())
		}
	}
	a := &call.answer
	return cell.HeartbeatReply{
		Start: cellAttempts(a.Start), Stop: cellAttempts(a.Stop), Cancel: cellAttempts(a.Cancel),
	}, nil
}

// Deregister takes the node out.
func (s *Store) Deregister(ctx context.Context, _ string, _ cell.Epoch) ([]string, error) {
	call, err := s.call(ctx, &frame.Request{Type: frame.TypeDeregister})
	if err != nil {
		return nil, err
	}
	return call.answer.Lost, nil
}

// Complete does not repeat a report whose answer is lost, because the jobs of that answer are lost
// too. The worker repeats it, and asks for a heartbeat that brings them.
func (s *Store) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	req := &frame.Request{
		Type: frame.TypeComplete, Attempt: &frame.Attempt{Job: comp.Attempt.Job, N: comp.Attempt.N},
		State: comp.State, Result: comp.Result, Error: comp.Error,
	}
	switch comp.Next {
	case cell.Retry:
		req.Next, req.RetryDelayMS = frame.NextRetry, max(comp.RetryDelay.Milliseconds(), 0)
	case cell.HandBack:
		req.Next = frame.NextHandBack
	}
	answer, err := s.complete(ctx, req)
	if err != nil {
		return "", err
	}
	if comp.Begun != nil && len(answer.Begun) > 0 {
		comp.Begun(cellDispatches(answer.Begun))
	}
	return cell.CompletionOutcome(answer.Outcome), nil
}

func (s *Store) complete(ctx context.Context, req *frame.Request) (*frame.Answer, error) {
	conn, err := s.connected()
	if conn == nil && err == nil {
		wait, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		conn, err = s.connection(wait)
		cancel()
	}
	if err != nil {
		return nil, err
	}
	if len(req.Result) > conn.welcome.InlineBytes {
		return s.post(ctx, conn, frame.CompletePath, req)
	}
	call, err := conn.roundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	return &call.answer, nil
}

// Progress splits nothing: a frame has room for the largest reports.
func (s *Store) Progress(
	ctx context.Context, _ string, _ cell.Epoch, reports []cell.ProgressReport,
) ([]cell.ProgressOutcome, error) {
	req := &frame.Request{Type: frame.TypeProgress, Reports: make([]frame.Report, len(reports))}
	for i := range reports {
		r := &reports[i]
		req.Reports[i] = frame.Report{Attempt: frame.Attempt(r.Attempt), Seq: r.Seq, Value: r.Value}
	}
	call, err := s.call(ctx, req)
	if err != nil {
		return nil, err
	}
	got := call.answer.Outcomes
	if len(got) != len(reports) {
		return nil, fmt.Errorf("progress of %d jobs: %d answers", len(reports), len(got))
	}
	out := make([]cell.ProgressOutcome, len(got))
	for i := range got {
		var known bool
		if out[i], known = progressOutcomes[got[i]]; !known {
			out[i] = cell.ProgressTaken // a gateway of a later release said more
		}
	}
	return out, nil
}

var progressOutcomes = map[string]cell.ProgressOutcome{
	frame.OutcomeTaken: cell.ProgressTaken, frame.OutcomeCancel: cell.ProgressCancel,
	frame.OutcomeStale: cell.ProgressStale,
}

// Served returns true: a gateway belongs to a replica.
func (s *Store) Served(context.Context) (bool, error) { return true, nil }

// Spec returns the job, which comes by HTTP if it is large. The HTTP part is bounded by post's
// time, and the request before it by roundTrip's.
func (s *Store) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	req := &frame.Request{Type: frame.TypeSpec, JobID: jobID}
	call, err := s.call(ctx, req)
	if err != nil {
		return nil, "", err
	}
	answer := &call.answer
	if answer.Large {
		if answer, err = s.post(ctx, call.conn, frame.SpecPath, req); err != nil {
			return nil, "", err
		}
	}
	if answer.Job == nil {
		return nil, "", fmt.Errorf("the gateway's answer has no job %s", jobID)
	}
	return answer.Job, answer.Tenant, nil
}

func frameAttempts(in []cell.Attempt) []frame.Attempt {
	out := make([]frame.Attempt, len(in))
	for i := range in {
		out[i] = frame.Attempt(in[i])
	}
	return out
}

func cellAttempts(in []frame.Attempt) []cell.Attempt {
	out := make([]cell.Attempt, len(in))
	for i := range in {
		out[i] = cell.Attempt(in[i])
	}
	return out
}

func cellDispatches(in []frame.Delivery) []cell.Dispatch {
	out := make([]cell.Dispatch, len(in))
	for i := range in {
		out[i] = cell.Dispatch{Attempt: cell.Attempt(in[i].Attempt), Tenant: in[i].Tenant, Job: in[i].Job}
	}
	return out
}
