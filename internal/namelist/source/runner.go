package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// lookEvery is how often a replica looks for lists whose time has come.
	lookEvery = time.Second
	// lease is how long a run holds its list without being renewed.
	lease = 30 * time.Second
	// maxRunning is how many runs a replica makes at the same time.
	maxRunning = 2
	// waitEvery is how often the build of a run is looked at.
	waitEvery = 100 * time.Millisecond
	// switchTimeout bounds the wait for clients and the switch.
	switchTimeout = 2 * time.Minute
	// lookAgain is how long a list whose source this replica does not have is not read again, unless
	// its assignment changes.
	lookAgain = time.Minute
	// maxWhy is the longest reason that is kept, in bytes.
	maxWhy = 512
)

// Imports makes versions of uploads; *manage.Manager implements it.
type Imports interface {
	OpenUpload(ctx context.Context, u manage.Upload) (manage.Upload, error)
	Chunk(id string, offset int64, data []byte, sum uint32) (manage.Upload, error)
	Commit(ctx context.Context, id string, size int64) (manage.Upload, error)
	Upload(id string) (manage.Upload, error)
	DropUpload(ctx context.Context, id string) error
	Switch(ctx context.Context, list string, r manage.SwitchRequest) (namelist.Operation, error)
}

// Auditor records a run that has ended.
type Auditor func(ctx context.Context, source, list string, run *Run)

// RunnerConfig configures a Runner.
type RunnerConfig struct {
	Replica string
	// Sources are the sources of this replica, by name. Without any it does nothing.
	Sources map[string]Config
	Control *namelist.Control
	Store   *Store
	Imports Imports
	// Audit may be nil.
	Audit Auditor
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Log     *zap.Logger
	// Every is the time between two looks; 0 means a second.
	Every time.Duration
}

// Runner runs the sources whose time has come.
type Runner struct {
	cfg  RunnerConfig
	log  *zap.Logger
	runs *prometheus.CounterVec
	took prometheus.Histogram
	ok   *prometheus.GaugeVec

	ctx    context.Context
	cancel context.CancelFunc
	start  sync.Once
	loops  sync.WaitGroup
	slots  chan struct{}
	outage *logging.Outage
	told   map[string]bool // sources that this replica does not have; only the loop uses it
	// elsewhere holds the lists that are due and that this replica need not read again for now. At
	// most MaxAssigned lists are due. Only the loop uses it.
	elsewhere map[string]passed
}

// passed is a list that was passed by.
type passed struct {
	at    string // when it became due
	until time.Time
}

// NewRunner makes a runner. It does no I/O.
func NewRunner(cfg RunnerConfig) *Runner {
	if cfg.Every == 0 {
		cfg.Every = lookEvery
	}
	auto := promauto.With(cfg.Metrics)
	r := &Runner{
		cfg: cfg, log: cfg.Log, slots: make(chan struct{}, maxRunning), told: make(map[string]bool),
		elsewhere: make(map[string]passed),
		outage:    logging.NewOutage(cfg.Log, "lists.sources_not_looked_at", "lists.sources_looked_at_again"),
		runs: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_list_source_runs_total",
			Help: "Runs of sources of lists, by source and result: served, unchanged, held, failed or lost.",
		}, []string{"source", "result"}),
		took: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_list_source_run_seconds", Buckets: prometheus.ExponentialBuckets(0.1, 4, 8),
			Help: "How long runs of sources of lists take, in seconds.",
		}),
		ok: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "freeslot_list_source_success_timestamp_seconds",
			Help: "When a source was last read to its end by this replica, in seconds since 1970.",
		}, []string{"source"}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start starts the loop.
func (r *Runner) Start(context.Context) error {
	if len(r.cfg.Sources) > 0 {
		r.start.Do(func() { r.loops.Go(r.loop) })
	}
	return nil
}

// Stop ends all runs: other replicas run them anew when their leases are over.
func (r *Runner) Stop(ctx context.Context) error {
	r.start.Do(func() {})
	r.cancel()
	return ending.Await(ctx, "stop sources of lists", r.loops.Wait)
}

func (r *Runner) loop() {
	for {
		pause := time.NewTimer(r.cfg.Every*9/10 + rand.N(r.cfg.Every/5+1))
		select {
		case <-pause.C:
			r.look()
		case <-r.ctx.Done():
			pause.Stop()
			return
		}
	}
}

// look takes the lists whose time has come, as many as there is room for.
func (r *Runner) look() {
	lists, nowMS, err := r.cfg.Store.Due(r.ctx)
	if err != nil {
		if r.ctx.Err() == nil {
			r.outage.Failed(err)
		}
		return
	}
	r.outage.Over()
	r.forget(lists)
	for _, due := range lists {
		list := due.List
		if p := r.elsewhere[list]; p.at == due.At && time.Now().Before(p.until) {
			continue
		}
		a, err := r.cfg.Store.Get(r.ctx, list)
		if err != nil && a.raw == "" {
			continue // it was unset, or Redis is away
		}
		if _, ok := r.cfg.Sources[a.Source]; !ok || err != nil { // the next Set mends what is unreadable
			r.elsewhere[list] = passed{due.At, time.Now().Add(lookAgain)}
			if !ok && a.Source != "" && !r.told[a.Source] && len(r.told) < MaxAssigned {
				r.told[a.Source] = true
				r.log.Warn("lists.source_not_here", zap.String("source", a.Source), zap.String("list", list))
			}
			continue
		}
		select {
		case r.slots <- struct{}{}:
		default:
			return
		}
		if !r.take(list, nowMS) {
			<-r.slots
		}
	}
}

// forget forgets the lists that are not due any more.
func (r *Runner) forget(due []Due) {
	if len(r.elsewhere) == 0 {
		return
	}
	still := make(map[string]bool, len(due))
	for _, d := range due {
		still[d.List] = true
	}
	maps.DeleteFunc(r.elsewhere, func(list string, _ passed) bool { return !still[list] })
}

// take begins a run, unless another replica has.
func (r *Runner) take(list string, nowMS int64) bool {
	run := Run{
		ID: strings.ToLower(ulid.Make().String()), Replica: r.cfg.Replica, AtMS: nowMS,
		LeaseMS: nowMS + lease.Milliseconds(),
	}
	var lost string
	a, err := r.cfg.Store.change(r.ctx, list, func(a *Assignment, nowMS int64) error {
		lost = ""
		switch {
		case a.raw == "":
			return errLost
		case a.Running != nil && a.Running.LeaseMS > nowMS, a.Running == nil && (a.NextMS == 0 || a.NextMS > nowMS):
			return errLost
		case a.Running != nil:
			before := *a.Running
			before.Result, before.TookMS, lost = Lost, nowMS-before.AtMS, before.Replica
			a.end(before)
		}
		run.byHand = a.asked
		a.Running, a.NextMS, a.asked = &run, a.next(nowMS), false
		return nil
	})
	switch {
	case freeslot.CodeOf(err) == freeslot.CodeNotFound: // the list has been deleted
		if err := r.cfg.Store.Unset(r.ctx, list); err != nil && r.ctx.Err() == nil {
			r.log.Warn("lists.source_not_removed", zap.String("list", list), zap.Error(err))
		}
		return false
	case err != nil:
		return false
	}
	if lost != "" {
		r.runs.WithLabelValues(a.Source, string(Lost)).Inc()
		r.log.Warn("lists.source_run_lost", zap.String("list", list), zap.String("replica", lost))
	}
	r.loops.Go(func() {
		defer func() { <-r.slots }()
		r.run(list, a)
	})
	return true
}

// run makes a run that this replica holds, and records its end.
func (r *Runner) run(list string, a Assignment) {
	cfg, run := r.cfg.Sources[a.Source], *a.Running
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(r.ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { r.renew(ctx, cancel, list, run.ID) })
	found, err := r.read(ctx, list, &a, &cfg, &run)
	if lost := context.Cause(ctx); lost != nil {
		err = errors.Join(err, lost)
	}
	cancel(nil)
	renewing.Wait()
	if r.ctx.Err() != nil {
		return // the lease ends, and another replica runs it anew
	}
	if err != nil {
		run.Result, run.Why = Failed, err.Error()[:min(len(err.Error()), maxWhy)]
	}
	run.TookMS = time.Since(begun).Milliseconds()
	r.audit(list, &a, &run)
	r.runs.WithLabelValues(a.Source, string(run.Result)).Inc()
	r.took.Observe(time.Since(begun).Seconds())
	fields := []zap.Field{
		zap.String("list", list), zap.String("source", a.Source), zap.String("result", string(run.Result)),
		zap.Int64("rows", run.Rows), zap.Int64("version", run.Version), zap.String("why", run.Why),
	}
	if run.Result == Failed || run.Result == Held {
		r.log.Warn("lists.source_run", fields...)
	} else {
		r.ok.WithLabelValues(a.Source).SetToCurrentTime()
		r.log.Info("lists.source_run", fields...)
	}
	if _, err := r.cfg.Store.change(r.ctx, list, func(a *Assignment, _ int64) error {
		if a.Running == nil || a.Running.ID != run.ID {
			return errLost
		}
		a.end(run)
		switch run.Result {
		case Served, Unchanged:
			a.mark, a.held = found, mark{}
		case Held:
			a.held = found
		}
		return nil
	}); err != nil && r.ctx.Err() == nil {
		r.log.Warn("lists.source_run_not_recorded", zap.String("list", list), zap.Error(err))
	}
}

// renew keeps the lease of a run, and cancels the run when it is lost.
func (r *Runner) renew(ctx context.Context, cancel context.CancelCauseFunc, list, run string) {
	ticker := time.NewTicker(lease / 3)
	defer ticker.Stop()
	held := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		err := r.hold(ctx, list, run)
		switch {
		case err == nil:
			held = asked
		case freeslot.CodeOf(err) == freeslot.CodeConflict, freeslot.CodeOf(err) == freeslot.CodeNotFound,
			time.Since(held) > lease/2: // the next look would come when another replica may have begun
			cancel(fmt.Errorf("the run lost its lease: %w", err))
			return
		}
	}
}

// hold renews the lease of a run. Errors: errLost, or one of Redis.
func (r *Runner) hold(ctx context.Context, list, run string) error {
	_, err := r.cfg.Store.change(ctx, list, func(a *Assignment, nowMS int64) error {
		if a.Running == nil || a.Running.ID != run {
			return errLost
		}
		a.Running.LeaseMS = nowMS + lease.Milliseconds()
		return nil
	})
	return err
}

// read reads the source, and has its version built and served. It fills in run, and returns what it
// has served.
func (r *Runner) read(ctx context.Context, list string, a *Assignment, c *Config, run *Run) (found mark, err error) {
	h, err := r.cfg.Control.Head(ctx, list)
	if err != nil {
		return found, err
	}
	if h.Birth != a.birth {
		return found, errors.New("the list was made anew; set its source again")
	}
	run.serving = h.Serving
	serves := h.Serving != nil && h.Serving.Number == a.mark.Version && h.Edited == h.Serving.Edited
	etag := ""
	if serves && a.mark.From == c.address() {
		etag = a.mark.ETag
	}
	u, err := r.cfg.Imports.OpenUpload(ctx, importRequest(list, a, c))
	if err != nil {
		return found, err
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, r.cfg.Imports.DropUpload(context.WithoutCancel(ctx), u.ID))
		}
	}()
	out := newUpload(r.cfg.Imports, u.ID, c)
	limited, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it took longer than timeout (%s)", c.Timeout))
	defer cancel()
	read, _ := c.read()
	found.ETag, err = read(limited, etag, out)
	found.From, found.Serving = c.address(), serving(&h)
	if late := context.Cause(limited); late != nil && ctx.Err() == nil {
		err = late
	}
	if errors.Is(err, errUnchanged) {
		run.Result = Unchanged
		return a.mark, nil
	}
	if err == nil {
		found.Sum, err = out.end()
	}
	run.Rows, run.Bytes = out.rows, out.bytes
	if err != nil {
		return found, err
	}
	switch {
	case serves && found.Sum == a.mark.Sum:
		run.Result = Unchanged
	case r.waits(ctx, &h, a, found.Sum, run):
	default:
		keep, err = r.serve(ctx, list, a, u.ID, run)
	}
	found.Approval, found.Request = run.approval, run.request
	if found.Version = run.Version; run.Result == Unchanged && run.serving != nil {
		found.Version = run.serving.Number
	}
	return found, err
}

// serving returns the number of the serving version; 0 if none serves.
func serving(h *namelist.Head) int64 {
	if h.Serving == nil {
		return 0
	}
	return h.Serving.Number
}

// waits reports whether a version of the same lines waits to be accepted, or its switch for
// approval. Another one each hour would fill the server, push out what others left to be accepted,
// and change the list under the request, which makes that a conflict. It also waits after a
// refusal, until somebody has the source run; after a request that has lapsed, the run asks again.
func (r *Runner) waits(ctx context.Context, h *namelist.Head, a *Assignment, sum string, run *Run) bool {
	if a.held.Version == 0 || a.held.Sum != sum {
		return false
	}
	v, err := r.cfg.Control.Version(ctx, h.Name, a.held.Version)
	why := cmp.Or(v.Doubt, a.held.Approval)
	if err != nil || why == "" || v.Edited != h.Edited || serving(h) != a.held.Serving {
		return false
	}
	if v.Doubt == "" && a.held.Request != "" {
		request, err := r.cfg.Control.Request(ctx, a.held.Request)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound || err == nil && asksAgain(&request, h, run) {
			return false
		}
		if err == nil && request.State != namelist.RequestPending {
			why = fmt.Sprintf("request %s is %s; `schedctl lists source run %s` asks again", request.ID, request.State, h.Name)
		}
	}
	run.Result, run.Version, run.Why = Held, v.Number, why
	run.approval, run.request = a.held.Approval, a.held.Request
	return true
}

// asksAgain reports whether a run asks anew for what this request did not bring about.
func asksAgain(request *namelist.ChangeRequest, h *namelist.Head, run *Run) bool {
	switch request.State {
	case namelist.RequestPending:
		return false
	case namelist.RequestApproved:
		return h.Op.ID == "" // else it may be the switch that goes on
	case namelist.RequestRejected, namelist.RequestWithdrawn:
		return run.byHand
	}
	return true
}

// serve has the upload built, and the list switched to it. keep is true if somebody must look at
// the upload.
func (r *Runner) serve(ctx context.Context, list string, a *Assignment, id string, run *Run) (keep bool, err error) {
	if _, err := r.cfg.Imports.Commit(ctx, id, run.Bytes); err != nil {
		return false, err
	}
	u, err := r.built(ctx, id)
	switch {
	case err != nil:
		return false, err
	case u.State != manage.Ready:
		return false, errors.New(u.Why)
	}
	run.Version = u.Version.Number
	if u.Version.Doubt != "" {
		run.Result, run.Why = Held, u.Version.Doubt
		return true, nil
	}
	built, err := r.cfg.Control.Version(ctx, list, run.Version) // it knows how many edits there were
	if err != nil {
		return false, err
	}
	serving := int64(0)
	if v := run.serving; v != nil {
		if serving = v.Number; v.Digest == built.Digest && v.Edited == built.Edited {
			run.Result, run.Version = Unchanged, 0 // in another order; the version goes as others do that never serve
			return false, nil
		}
	}
	if err := r.hold(ctx, list, run.ID); err != nil { // the source may have been unset meanwhile
		return false, err
	}
	// A switch by somebody else meanwhile wins: the next run looks again.
	request := manage.SwitchRequest{Number: run.Version, Serving: serving, By: a.by()}
	_, err = r.cfg.Imports.Switch(ctx, list, request)
	if errors.Is(err, manage.ErrHeld) {
		run.Result, run.Why = Held, err.Error()[:min(len(err.Error()), maxWhy)]
		run.approval = run.Why
		if p, ok := errors.AsType[interface {
			error
			RequestID() string
		}](err); ok {
			run.request = p.RequestID()
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := r.switched(ctx, list, run.Version); err != nil {
		return false, err
	}
	run.Result = Served
	return false, nil
}

// built waits until the build of an upload is over.
func (r *Runner) built(ctx context.Context, id string) (u manage.Upload, err error) {
	err = wait(ctx, func() (bool, error) {
		u, err = r.cfg.Imports.Upload(id)
		return u.State == manage.Ready || u.State == manage.Failed, err
	})
	return u, err
}

// switched waits until a list serves a version.
func (r *Runner) switched(ctx context.Context, list string, number int64) error {
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	return wait(ctx, func() (bool, error) {
		h, err := r.cfg.Control.Head(ctx, list)
		if err != nil {
			return false, err
		}
		if h.Serving != nil && h.Serving.Number == number {
			return true, nil
		}
		if h.Op.Kind != namelist.OpSwitch || h.Op.Number != number {
			return false, fmt.Errorf("the switch to version %d was cancelled", number)
		}
		return false, nil
	})
}

func wait(ctx context.Context, over func() (bool, error)) error {
	ticker := time.NewTicker(waitEvery)
	defer ticker.Stop()
	for {
		if done, err := over(); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// audit records a run that changed the list, or that failed or was held for another reason than the
// one before.
func (r *Runner) audit(list string, a *Assignment, run *Run) {
	if r.cfg.Audit == nil || run.Result == Unchanged ||
		run.Result != Served && len(a.Runs) > 0 && a.Runs[0].Result == run.Result && a.Runs[0].Why == run.Why {
		return
	}
	r.cfg.Audit(r.ctx, a.Source, list, run)
}

// by says in versions where they come from.
func (a *Assignment) by() namelist.By { return namelist.By{Author: "source/" + a.Source} }
