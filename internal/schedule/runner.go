package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/beat"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// DefaultInterval is the time between two looks at what is due in a cell.
	DefaultInterval = time.Second
	// DefaultTakeOver is how late a run must be before other replicas than the first one take it.
	DefaultTakeOver = 2 * time.Second

	// pageSize is the most due schedules that one look finds.
	pageSize = 128
	// aheadIntervals is how many intervals a look sees ahead.
	aheadIntervals = 2
	// workers is how many schedules of a cell are worked on at once.
	workers = 8
	// retryPause is the time before a failed run is tried again.
	retryPause = time.Second
	// brokenPause is the time before a schedule that cannot be read is read again.
	brokenPause = time.Minute
	callTimeout = 3 * time.Second
	// shortest is the least time between two looks.
	shortest = 5 * time.Millisecond
)

// Dispatcher lists what a Runner calls of *dispatch.Dispatcher.
type Dispatcher interface {
	Home(tenant string, job *freeslot.Job, near int) (int, error)
	Submit(
		ctx context.Context, reqs []dispatch.Request, sink dispatch.Sink,
		accepted func(i int, a dispatch.Accepted, err error),
	)
	Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error)
}

// Markers drops the markers of jobs that were created. *cell.Set implements it.
type Markers interface {
	// ForgetOnce drops the marker of a job. No replica may enqueue the job again under this
	// dispatch.Run.Once.
	ForgetOnce(ctx context.Context, tenant, jobID, once string) error
}

// Config configures a Runner. The zero value of each field except Replica means its default.
type Config struct {
	// Replica is the name of this replica.
	Replica string
	// Interval is the time between two looks at what is due in a cell. It varies by a quarter.
	Interval time.Duration
	// TakeOver is how late a run must be before this replica takes it although another one goes
	// first.
	TakeOver time.Duration
	// MaxPayloadBytes bounds the payload of a template; 0 means freeslot.DefaultMaxPayloadBytes.
	MaxPayloadBytes int
	// MarkerRetention is the least time for which the marker of a created job is kept; 0 means
	// cell.DefaultKeyRetention.
	MarkerRetention time.Duration
}

// WithDefaults returns a copy of c with zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.TakeOver == 0 {
		c.TakeOver = DefaultTakeOver
	}
	if c.MaxPayloadBytes == 0 {
		c.MaxPayloadBytes = freeslot.DefaultMaxPayloadBytes
	}
	if c.MarkerRetention == 0 {
		c.MarkerRetention = cell.DefaultKeyRetention
	}
	return c
}

// Runner makes the runs of schedules. All methods are safe for concurrent use.
type Runner struct {
	cfg     Config
	store   store
	markers Markers
	jobs    Dispatcher
	log     *zap.Logger
	often   *zap.Logger // sampled
	metrics *metrics
	// share holds the schedules for which this replica goes first; nil means all.
	share atomic.Pointer[selection.Share]

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	loops       sync.WaitGroup
}

// NewRunner makes a runner. It does no I/O. reg may be nil.
func NewRunner(
	cfg Config, runners []*script.Runner, markers Markers, jobs Dispatcher, log *zap.Logger, reg prometheus.Registerer,
) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{
		cfg: cfg.WithDefaults(), store: newStore(runners), markers: markers, jobs: jobs, log: log,
		often: logging.Sampled(log), metrics: newMetrics(reg),
		ctx: ctx, cancel: cancel,
	}
}

// SetReplicas sets the replicas that run, this one among them, each named once. One of them goes
// first for each schedule. Before the first call this replica goes first for all.
func (r *Runner) SetReplicas(names []string) {
	r.share.Store(selection.NewShare(r.cfg.Replica, names))
}

// Start starts the loops that make runs. It does no I/O.
func (r *Runner) Start(context.Context) error {
	r.start.Do(func() {
		for _, c := range r.store {
			r.loops.Go(func() { r.loop(c) })
		}
	})
	return nil
}

// Stop ends the loops. The other replicas take over a run that is being made. It may be called
// twice, and on a runner that was never started.
func (r *Runner) Stop(context.Context) error {
	r.start.Do(func() {}) // a runner that is stopped before its Start never starts
	r.stop.Do(r.cancel)
	r.loops.Wait() // each call has a deadline of its own
	return nil
}

func (r *Runner) loop(c *cellStore) {
	failing := logging.NewOutage(r.log.With(zap.Int("cell", c.index)), "schedules.look_failed", "schedules.looked_again")
	timer := time.NewTimer(rand.N(r.cfg.Interval))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
		pause, err := r.poll(c)
		switch {
		case err == nil:
			failing.Over()
		case r.ctx.Err() == nil:
			failing.Failed(err)
		}
		timer.Reset(pause)
	}
}

// poll makes the runs that are due, and returns the time until the next poll.
func (r *Runner) poll(c *cellStore) (pause time.Duration, err error) {
	pause = beat.Pause(r.cfg.Interval*7/8 + rand.N(r.cfg.Interval/4+1))
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	found, nowMS, err := c.due(ctx, aheadIntervals*r.cfg.Interval, pageSize)
	if err != nil {
		return pause, err
	}
	var mine []string
	for _, f := range found {
		late := nowMS - f.atMS
		first := r.first(f.id)
		switch {
		case late >= 0 && (first || late >= r.cfg.TakeOver.Milliseconds()):
			mine = append(mine, f.id)
		case late < 0 && first:
			pause = min(pause, max(time.Duration(-late)*time.Millisecond, shortest))
		}
	}
	if len(mine) == 0 {
		return pause, nil
	}
	var made atomic.Bool
	r.each(mine, func(id string) {
		some, err := r.handle(id)
		if some {
			made.Store(true)
		}
		if err != nil && r.ctx.Err() == nil {
			r.often.Warn("schedule.run_failed", zap.String("schedule", id), zap.Error(err))
		}
	})
	if made.Load() {
		return shortest, nil // for runs that came due meanwhile
	}
	return pause, nil
}

// first reports whether this replica goes first for a schedule.
func (r *Runner) first(id string) bool {
	share := r.share.Load()
	return share == nil || share.Has(id)
}

// each calls f for all ids, some at the same time: an id whose cell is away does not hold up the
// others.
func (r *Runner) each(ids []string, f func(id string)) {
	next := make(chan string, len(ids))
	for _, id := range ids {
		next <- id
	}
	close(next)
	var all sync.WaitGroup
	for range min(workers, len(ids)) {
		all.Go(func() {
			for id := range next {
				f(id)
			}
		})
	}
	all.Wait()
}

// errTaken is returned if another replica, or a client, changed the schedule first.
var errTaken = errors.New("the schedule was changed meanwhile")

// handle makes the due runs of a schedule, one after the other, but not more than may be made up
// for. some is true if it made one.
func (r *Runner) handle(id string) (some bool, err error) {
	for range MaxMissed + 1 {
		more, err := r.advance(id)
		if errors.Is(err, errTaken) {
			return some, nil // the other one continues
		}
		if err != nil || !more {
			return some, err
		}
		some = true
	}
	return some, nil
}

// advance takes a schedule through one run. more is true if there may be another.
func (r *Runner) advance(id string) (more bool, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, 3*callTimeout)
	defer cancel()
	run, err := r.read(ctx, id)
	switch {
	case err != nil || run == nil || r.ctx.Err() != nil:
		return false, err
	case run.state.Claim != nil:
		return r.make(ctx, run)
	case run.state.Paused || run.state.NextMS == 0 || run.state.NextMS > run.nowMS:
		// There was no reason for the look: an edit by hand, or a change just now.
		return false, run.write(ctx, run.state.step(), 0)
	}
	d := due(&run.expression, run.schedule, run.state.NextMS, run.nowMS)
	next := run.state.step()
	if d.missed > 0 {
		next.Missed += d.missed
		// One that a later run replaces within its grace is no trouble, such as each second's when Redis
		// was away for two.
		if run.nowMS-run.state.NextMS > run.schedule.graceMS() {
			next.LastMissedMS = run.nowMS
		}
	}
	if d.runMS == 0 {
		next.NextMS = d.nextMS
	} else {
		next.NextMS, next.Claim = d.runMS, &claim{RunMS: d.runMS, SinceMS: run.nowMS}
		_ = r.place(run, next.Claim) // if it fails, the next step reports the error
	}
	if err := run.write(ctx, next, 0); err != nil {
		return false, err
	}
	r.metrics.missed.Add(float64(d.missed))
	if d.runMS == 0 {
		return false, nil
	}
	return r.make(ctx, run)
}

// place chooses a cell that takes the job of a run, and gives the job its id.
func (r *Runner) place(run *run, c *claim) error {
	home, err := r.jobs.Home(run.tenant, &run.schedule.Job, run.cell.index)
	if err == nil {
		c.JobID, c.PlacedMS = jobID(home, run.record.id, run.state.UID, c.RunMS), run.nowMS
	}
	return err
}

// make creates the job of the claim.
func (r *Runner) make(ctx context.Context, run *run) (more bool, err error) {
	st := run.state
	if st.Claim.JobID == "" {
		next := st.step()
		if err := r.place(run, next.Claim); err != nil {
			return r.refused(ctx, run, err)
		}
		if err := run.write(ctx, next, 0); err != nil {
			return false, err
		}
		st = run.state
	}
	// The marker may be gone in the cell where it was made, so a job created now could be a second
	// one.
	if limit := r.cfg.MarkerRetention / 2; run.nowMS-st.Claim.PlacedMS > limit.Milliseconds() {
		if made, err := r.exists(ctx, run); err != nil || made {
			return r.ended(ctx, run, err)
		}
		return r.failed(
			ctx, run,
			fmt.Errorf("it is not known whether the job was created, for which there was no definite answer in %s", limit),
		)
	}
	if err := r.allowed(run.schedule); err != nil {
		return r.refused(ctx, run, err)
	}
	job := run.schedule.Job
	var outcome error
	r.jobs.Submit(ctx, []dispatch.Request{{
		Tenant: run.tenant, Job: &job, Run: &dispatch.Run{JobID: st.Claim.JobID, Once: st.once()},
		Origin: cell.Origin{Schedule: run.name},
	}}, nil, func(_ int, _ dispatch.Accepted, err error) { outcome = err })
	if outcome != nil {
		return r.refused(ctx, run, outcome)
	}
	return r.ended(ctx, run, nil)
}

// allowed checks that this replica would accept the schedule: limits may have changed.
func (r *Runner) allowed(s *Definition) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return wire.CheckPayload("job", &s.Job, r.cfg.MaxPayloadBytes)
}

// exists reports whether the job of the claim was created, according to its record.
func (r *Runner) exists(ctx context.Context, run *run) (bool, error) {
	if run.state.Claim.JobID == "" {
		return false, nil
	}
	_, err := r.jobs.Job(ctx, run.tenant, run.state.Claim.JobID)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

// refused handles a job that could not be created: by another try, or by the end of the run.
func (r *Runner) refused(ctx context.Context, run *run, cause error) (more bool, err error) {
	if r.ctx.Err() != nil {
		return false, nil // this replica stops; another one continues
	}
	// A run that the tenant's submit rate does not allow yet is late, and never lost.
	limited := freeslot.CodeOf(cause) == freeslot.CodeRateLimited
	if limited || isTemporary(cause) && run.nowMS-run.state.Claim.SinceMS < run.schedule.graceMS() {
		next := run.state.step()
		next.fail(cause, run.nowMS)
		return false, run.write(ctx, next, run.nowMS+retryPause.Milliseconds())
	}
	// An earlier try may have been applied, although its answer was lost.
	made, err := r.exists(ctx, run)
	switch {
	case err != nil:
		next := run.state.step()
		next.fail(err, run.nowMS)
		return false, run.write(ctx, next, run.nowMS+retryPause.Milliseconds())
	case made:
		return r.ended(ctx, run, nil)
	default:
		return r.failed(ctx, run, cause)
	}
}

// failed ends a run without a job.
func (r *Runner) failed(ctx context.Context, run *run, cause error) (more bool, err error) {
	next := run.state.step()
	next.fail(cause, run.nowMS)
	next.Failed++
	next.over(&run.expression)
	if err := run.write(ctx, next, 0); err != nil {
		return false, err
	}
	r.metrics.runs.WithLabelValues("failed").Inc()
	r.log.Warn(
		"schedule.run_not_made", zap.String("schedule", run.record.id), zap.Int64("run_ms", next.LastMS), zap.Error(cause),
	)
	return true, nil
}

// ended ends a run whose job was created. If err is not nil, that is not known, and it returns err.
func (r *Runner) ended(ctx context.Context, run *run, err error) (more bool, _ error) {
	if err != nil {
		return false, err
	}
	job, once := run.state.Claim.JobID, run.state.once()
	lag := time.Duration(run.nowMS-run.state.Claim.RunMS)*time.Millisecond + time.Since(run.readAt)
	for range tries {
		next := run.state.step()
		next.Made, next.LastJob, next.LastError, next.LastErrorMS = next.Made+1, job, "", 0
		next.over(&run.expression)
		if err = run.write(ctx, next, 0); !errors.Is(err, errTaken) {
			break
		}
		// A client may have changed the schedule, which leaves the claim as it is.
		if run, err = r.read(ctx, run.record.id); err != nil || run == nil || run.state.Claim == nil ||
			run.state.Claim.JobID != job {
			return true, err
		}
	}
	if err != nil {
		return false, err
	}
	r.metrics.runs.WithLabelValues("created").Inc()
	r.metrics.lag.Observe(max(lag.Seconds(), 0))
	// If this fails, the marker expires by itself.
	if err := r.markers.ForgetOnce(ctx, run.tenant, job, once); err != nil {
		r.log.Debug("schedule.marker_stays", zap.String("schedule", run.record.id), zap.Error(err))
	}
	return true, nil
}

// run is a schedule that is being worked on.
type run struct {
	*found
	cell       *cellStore
	tenant     string
	name       string
	expression cron.Expression
	readAt     time.Time // the time of nowMS by this process' clock
}

// read returns nil if the schedule cannot be worked on.
func (r *Runner) read(ctx context.Context, id string) (*run, error) {
	c := r.store.of(id)
	record, nowMS, err := c.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if record.state == "" && record.definition != "" {
		return nil, r.mend(ctx, c, record, nowMS)
	}
	run := &run{found: decodeFound(record, nowMS), cell: c, readAt: time.Now()}
	var ok bool
	if run.tenant, run.name, ok = splitID(id); !ok {
		run.broken = errors.New("its name is " + strconv.Quote(id))
	}
	if run.broken == nil && run.state != nil {
		run.expression, run.broken = cron.Parse(run.schedule.Cron, run.schedule.TimeZone)
	}
	switch {
	case run.broken != nil:
		r.often.Warn("schedule.unreadable", zap.String("schedule", id), zap.Error(run.broken))
		_, err := c.write(
			ctx, write{id: id, seen: record.state, state: record.state, dueMS: nowMS + brokenPause.Milliseconds()},
		)
		return nil, err
	case run.state == nil:
		_, err := c.write(ctx, write{id: id})
		return nil, err
	}
	return run, nil
}

// mend gives a schedule a new state after an operator removed its state.
func (r *Runner) mend(ctx context.Context, c *cellStore, record record, nowMS int64) error {
	st := &state{UID: newUID(), Steps: 1, Version: 1, CreatedMS: nowMS, UpdatedMS: nowMS, Paused: true}
	if s, err := decodeDefinition(record.definition); err != nil {
		st.fail(err, nowMS)
	} else {
		e, _ := cron.Parse(s.Cron, s.TimeZone) // decodeDefinition has checked it
		st = newState(&e, nowMS, false)
	}
	r.log.Warn("schedule.mended", zap.String("schedule", record.id))
	_, err := c.write(ctx, write{id: record.id, state: st.encode(), dueMS: st.dueMS()})
	return err
}

// write stores next as the state. A replica looks at it again at atMS, or at the state's own time
// if atMS is 0. It returns errTaken if the state has changed meanwhile.
func (run *run) write(ctx context.Context, next *state, atMS int64) error {
	text := next.encode()
	if atMS == 0 {
		atMS = next.dueMS()
	}
	made, err := run.cell.write(ctx, write{id: run.record.id, seen: run.record.state, state: text, dueMS: atMS})
	if err != nil {
		return err
	}
	if !made {
		return errTaken
	}
	run.state, run.record.state = next, text
	return nil
}
