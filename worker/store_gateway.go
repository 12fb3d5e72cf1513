package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// queueSpare is the number of deliveries, such as cancels, that may wait in addition to two for
	// each slot.
	queueSpare = 256
	// bulkAtOnce bounds the HTTP requests under way: heartbeats share the line with them.
	bulkAtOnce = 2
)

// gatewayStore is the store of a node that reaches Redis through a replica's gateway. It keeps one
// connection, by which everything goes that is not too large, and replaces it when it ends. Only
// the current connection counts: whatever comes by a former one is void.
//
// It must give the worker the same order that Redis gives: the answer to a heartbeat comes behind
// the deliveries that Redis wrote before it. The gateway sends them in this order. Heartbeat keeps
// it, because it returns once the worker has taken in the deliveries that came before the answer.
// Otherwise a duplicate in the queue could be offered when the ledger has just forgotten the
// attempt, and the attempt would start again.
type gatewayStore struct {
	cfg     Config
	log     *zap.Logger
	epoch   cell.Epoch
	beat    func() // requests a heartbeat without waiting for it
	metrics *gatewayMetrics
	addrs   []*url.URL
	// transport serves the connection and the bulk requests. It speaks HTTP/1.1 only: HTTP/2 has no
	// upgrades.
	transport *http.Transport
	bulk      chan struct{} // holds a token for each HTTP request under way

	loops    sync.WaitGroup
	endLoops context.CancelFunc
	arrival  chan struct{} // holds a token if the queue has grown
	settled  chan struct{} // holds a token if done has grown
	// dials is the number of the last connection. rests holds the time until which an address is
	// not tried. They and dialTimeout belong to the loop that dials.
	dials       int64
	rests       map[*url.URL]time.Time
	dialTimeout time.Duration

	mu      sync.Mutex         // guards the rest
	current *gatewayConnection // nil if there is none
	// candidate becomes the current connection if Redis answers a heartbeat through it; nil if
	// there is none.
	candidate *gatewayConnection
	lastBeat  frame.Request // the last heartbeat
	changed   chan struct{} // closed and replaced when current or fatal changes
	fatal     error         // why no more connections will come
	// replaces is the epoch that the next registration may take over. Until the node is registered
	// it is the epoch that the last welcome named; later the node may only replace its own.
	replaces   cell.Epoch
	registered bool
	// queue holds the deliveries that Dispatches has not returned, at most queueLimit of them.
	// Further ones are dropped, and a heartbeat finds them.
	queue      []cell.Dispatch
	queueLimit int
	// arrived counts the deliveries that were queued. taken counts those that Dispatches has
	// returned. done counts those that an earlier call of Dispatches returned: the worker has taken
	// them in.
	arrived, taken, done uint64
}

// newGatewayStore makes a store. It does no I/O, except that it reads the certificates.
func newGatewayStore(cfg Config, epoch cell.Epoch, beat func(), metrics *gatewayMetrics) (*gatewayStore, error) {
	addrs, err := gatewayAddrs(cfg.Gateway)
	if err != nil {
		return nil, err
	}
	transport, err := gatewayTransport(cfg.GatewayTLS)
	if err != nil {
		return nil, err
	}
	return &gatewayStore{
		cfg: cfg, log: cfg.Logger.With(zap.String(logging.FieldNode, cfg.Node.ID)), epoch: epoch, beat: beat,
		metrics: metrics,
		addrs:   addrs, transport: transport, bulk: make(chan struct{}, bulkAtOnce),
		arrival: make(chan struct{}, 1), settled: make(chan struct{}, 1), changed: make(chan struct{}),
		queueLimit: queueSpare, dialTimeout: firstDialTimeout, rests: map[*url.URL]time.Time{},
	}, nil
}

// start connects to one of the gateways. It tries each once.
func (s *gatewayStore) start(ctx context.Context) error {
	if plain := loopback.Plain(s.cfg.Gateway); plain != "" && !s.cfg.GatewayInsecure {
		s.log.Warn(
			"gateway.plain", zap.String("gateway", plain),
			zap.String(logging.FieldReason, "the node's token goes there in the clear: use wss://, or gateway_insecure where that way is private"),
		)
	}
	conn, err := s.dialAny(ctx, false)
	if err != nil {
		s.transport.CloseIdleConnections()
		return err
	}
	s.log.Info("gateway.connected", conn.fields()...)
	if limit := conn.limit(); 2*s.cfg.HeartbeatInterval > limit {
		s.log.Warn("gateway.heartbeat_interval_long", zap.Duration("heartbeat_interval", s.cfg.HeartbeatInterval),
			zap.Duration("heartbeat_limit", limit),
			zap.String(logging.FieldReason, "one late heartbeat can cost the node its jobs"))
	}
	loops, end := context.WithCancel(context.Background())
	s.endLoops = end
	s.adopt(conn, true)
	s.loops.Go(func() { s.connect(loops, conn) })
	return nil
}

// stop says goodbye and waits for everything to end. Once ctx has ended, it cuts the connection
// without a goodbye.
func (s *gatewayStore) stop(ctx context.Context) error {
	s.endLoops()
	s.mu.Lock()
	conn := s.current
	s.end(cell.ErrStopped)
	s.mu.Unlock()
	if conn != nil {
		conn.leave()
		defer context.AfterFunc(ctx, func() { conn.cut(ctx.Err()) })()
	}
	s.loops.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// connection waits for the current connection. It returns ErrNotSent if there was none before ctx
// ended.
func (s *gatewayStore) connection(ctx context.Context) (*gatewayConnection, error) {
	for {
		s.mu.Lock()
		conn, changed, fatal := s.current, s.changed, s.fatal
		s.mu.Unlock()
		switch {
		case fatal != nil:
			return nil, fatal
		case conn != nil:
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no gateway is connected: %w", cell.ErrNotSent, ctx.Err())
		}
	}
}

// adopt makes conn the current connection and starts it. The former one, if any, is void from then
// on. A heartbeat through the new one brings what was missed meanwhile. adopt returns false if no
// more connections are wanted.
func (s *gatewayStore) adopt(conn *gatewayConnection, first bool) bool {
	s.mu.Lock()
	if s.fatal != nil {
		s.mu.Unlock()
		_ = conn.socket.CloseNow()
		return false
	}
	s.switchTo(conn)
	s.mu.Unlock()
	conn.start()
	if !first {
		s.beat()
	}
	return true
}

// drop records that nothing more comes by conn.
func (s *gatewayStore) drop(conn *gatewayConnection, superseded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn.lose()
	if s.current != conn {
		return
	}
	s.current = nil
	s.metrics.connected.Set(0)
	if superseded {
		s.end(cell.ErrSuperseded)
		return
	}
	s.announce()
}

// end makes every call return the error, from now on. The caller holds mu.
func (s *gatewayStore) end(fatal error) {
	if s.fatal == nil {
		s.fatal = fatal
	}
	s.announce()
	notify(s.arrival)
}

// announce wakes the goroutines that wait for a connection. The caller holds mu.
func (s *gatewayStore) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// call sends a request and waits for its answer. If the connection ends meanwhile, it goes on with
// the next one: repeating is harmless. It returns the errors of roundTrip, ErrNotSent if no
// connection came before ctx ended, and ErrSuperseded or ErrStopped if none will come.
func (s *gatewayStore) call(ctx context.Context, req *frame.Request) (*gatewayCall, error) {
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
func (s *gatewayStore) Register(ctx context.Context, node freeslot.Node, _ cell.Epoch) (cell.Registration, error) {
	s.mu.Lock()
	s.queueLimit = max(s.queueLimit, 2*node.MaxConcurrency+queueSpare)
	req := &frame.Request{Type: frame.TypeRegister, Profile: &node, Replaces: s.replaces}
	s.mu.Unlock()
	call, err := s.call(ctx, req)
	if err != nil {
		return cell.Registration{}, err
	}
	s.mu.Lock()
	s.registered, s.replaces = true, s.epoch
	s.mu.Unlock()
	s.beat() // the gateway sends no jobs before a heartbeat
	return cell.Registration{Lost: call.answer.Lost, HeartbeatLimit: call.conn.limit()}, nil
}

// Heartbeat makes the node look for another gateway if it is refused or not answered in time.
func (s *gatewayStore) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
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
func (s *gatewayStore) Deregister(ctx context.Context, _ string, _ cell.Epoch) ([]string, error) {
	call, err := s.call(ctx, &frame.Request{Type: frame.TypeDeregister})
	if err != nil {
		return nil, err
	}
	return call.answer.Lost, nil
}

// Complete does not repeat a report whose answer is lost, because the jobs of that answer are lost
// too. The worker repeats it, and asks for a heartbeat that brings them.
func (s *gatewayStore) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
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

func (s *gatewayStore) complete(ctx context.Context, req *frame.Request) (*frame.Answer, error) {
	wait, cancel := context.WithTimeout(ctx, callTimeout)
	conn, err := s.connection(wait)
	cancel()
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
func (s *gatewayStore) Progress(
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
			return nil, fmt.Errorf("progress of job %s: unknown outcome %q", reports[i].Attempt.Job, got[i])
		}
	}
	return out, nil
}

var progressOutcomes = map[string]cell.ProgressOutcome{
	frame.OutcomeTaken: cell.ProgressTaken, frame.OutcomeCancel: cell.ProgressCancel,
	frame.OutcomeStale: cell.ProgressStale,
}

// Dispatches returns deliveries from the gateway. Their ids are of this process alone, and after is
// ignored: nothing is returned twice. A call also means that the worker has taken in what the call
// before returned.
func (s *gatewayStore) Dispatches(
	ctx context.Context, _, _ string, block time.Duration, limit int,
) ([]cell.Dispatch, error) {
	timeout := time.NewTimer(block)
	defer timeout.Stop()
	for {
		found, err := s.take(limit)
		if len(found) > 0 || err != nil {
			return found, err
		}
		select {
		case <-s.arrival:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *gatewayStore) take(limit int) ([]cell.Dispatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = s.taken
	notify(s.settled)
	if s.fatal != nil {
		return nil, s.fatal
	}
	n := min(len(s.queue), limit)
	found := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	s.taken += uint64(n)
	return found, nil
}

// push queues deliveries from the gateway. The caller holds mu.
func (s *gatewayStore) push(found ...cell.Dispatch) {
	for _, d := range found {
		if len(s.queue) >= s.queueLimit {
			s.beat()
			break
		}
		s.arrived++
		d.ID = strconv.FormatUint(s.arrived, 10) + "-0"
		s.queue = append(s.queue, d)
	}
	notify(s.arrival)
}

// Served returns true: a gateway belongs to a replica.
func (s *gatewayStore) Served(context.Context) (bool, error) { return true, nil }

// Spec returns the job, which comes by HTTP if it is large. The HTTP part is bounded by post's
// time, and the request before it by roundTrip's.
func (s *gatewayStore) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
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
