// Package manage is the part of a replica that tends lists: it takes uploads, builds versions,
// switches, compacts, and ends what other replicas left behind.
//
// # What happens on failure
//
// An operation has a lease in Redis, which its replica renews. If the lease lapses, any replica
// takes the operation and cancels it: the list is as before, and the keys of the build are removed.
// A switch ends in the step that moves the pointer, so a lapsed switch has not moved it. A build
// stops when its lease is lost.
package manage

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// DefaultPause is the pause between two rounds over all lists.
	DefaultPause = 5 * time.Second
	// renewEvery is how often the lease of an operation is renewed.
	renewEvery = namelist.Lease / 3
	// keepVersions is the least number of versions that a list keeps.
	keepVersions = 2
	// maxBuilds is how many versions a replica makes at the same time.
	maxBuilds = 4
	// endTimeout bounds the calls that end an operation after its context has ended.
	endTimeout = 5 * time.Second
)

// Config holds what a manager works with. A zero Pause means DefaultPause.
type Config struct {
	// Self is the replica's id. URL is where other programs reach it, or empty.
	Self, URL string
	// Dir is the folder for uploads and builds, which is made when it is first needed. Only this
	// manager uses it.
	Dir   string
	Pause time.Duration
	// Server opens a list server by its name; the empty name is the control server. It returns a
	// *NoServerError for a name that is not configured.
	Server func(ctx context.Context, name string) (*version.Segments, error)
	// Permit decides whether the version of an upload may be switched to at once; its error tells why
	// not. It may set Serving to the version that it compared with, and Quota. nil permits all.
	Permit func(ctx context.Context, u *Upload, r *SwitchRequest) error
	// Servers holds the list servers to announce again if the control server has lost them.
	Servers []namelist.Server
	// Metrics may be nil. A second manager on one registerer panics.
	Metrics prometheus.Registerer
}

// ErrHeld is returned for a switch that waits for approval.
var ErrHeld = errors.New("it waits for approval")

// NoServerError is returned for a list server that is not configured.
type NoServerError struct{ Name string }

func (e *NoServerError) Error() string {
	return fmt.Sprintf("this replica does not have list server %q in lists.servers", e.Name)
}

// Unwrap returns the error with its code.
func (e *NoServerError) Unwrap() error {
	return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: e.Error()}
}

// Manager does a replica's work for lists. Its methods are safe for concurrent use.
type Manager struct {
	cfg     Config
	control *namelist.Control
	log     *zap.Logger
	metrics *metrics

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	start  sync.Once
	stop   sync.Once
	loops  sync.WaitGroup
	slots  chan struct{} // of builds
	reads  chan struct{}
	quota  quota

	mu      sync.Mutex
	stopped bool               // guarded by mu
	uploads map[string]*Upload // guarded by mu; by id
	// wrote holds what builds of this replica write, by operation: the record forgets it when
	// another replica cancels the operation.
	wrote map[string]namelist.Reservation // guarded by mu
	// ended holds the versions that were removed. They are removed again after lateWrites.
	ended       []endedBuild       // guarded by mu
	verifyEvery time.Duration      // tests have a shorter time
	verifies    chan namelist.Head // for verifyLoop, when it waits
	// compactions, and told, which holds what was last logged of failing lists, are by list. Only
	// tendLoop uses them.
	compactions map[string]compaction
	told        map[string]string
	away        *logging.Outage // of Redis; only tendLoop uses it
	// served has the serving version of each list that has one, by list, as of the last round over
	// all lists; nil before the first. No one changes the map.
	served atomic.Pointer[map[string]*namelist.Version]
}

// endedBuild is a build whose late writes may still come.
type endedBuild struct {
	list    string
	version namelist.Version
	at      time.Time // of the first removal
}

// lateWrites is the time after which an ended build is removed once more.
const lateWrites = time.Hour

// New makes a manager. It does no I/O.
func New(cfg Config, control *namelist.Control, log *zap.Logger) *Manager {
	if cfg.Pause == 0 {
		cfg.Pause = DefaultPause
	}
	m := &Manager{
		cfg: cfg, control: control, log: log, metrics: newMetrics(cfg.Metrics), slots: make(chan struct{}, maxBuilds),
		reads: make(chan struct{}, maxReads), quota: defaultQuota, uploads: make(map[string]*Upload),
		wrote: make(map[string]namelist.Reservation), verifyEvery: verifyEvery, verifies: make(chan namelist.Head),
		compactions: make(map[string]compaction), told: make(map[string]string),
		away: logging.NewOutage(log, "lists.tend_failed", "lists.tended_again"),
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Start takes over the uploads of an earlier process from the folder, and starts tending all lists.
func (m *Manager) Start(context.Context) error {
	if err := m.readUploads(); err != nil {
		return fmt.Errorf("uploads of lists: %w", m.named(err))
	}
	m.start.Do(func() {
		m.loops.Go(m.tendLoop)
		m.loops.Go(m.sweepLoop)
		m.loops.Go(m.collectLoop)
		m.loops.Go(m.verifyLoop)
	})
	return nil
}

// Stop ends all work of this replica: other replicas, or the next process with this folder,
// continue it. Switches are given up: their lists are as before, and take other operations at once.
// It waits until the work has ended, or ctx has.
func (m *Manager) Stop(ctx context.Context) error {
	m.stop.Do(func() {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
		m.cancel()
	})
	return ending.Await(ctx, "stop work on lists", m.loops.Wait)
}

// errStopped is the cause of work that Stop has ended.
var errStopped = errors.New("the replica stops")

// errCancelled says why a cancelled import failed. An operator cancelled it, or another replica
// while this one was silent.
var errCancelled = errors.New("the operation was cancelled; import the file anew")

// isOver reports whether a failed operation had ended before, or was taken from this replica.
func (m *Manager) isOver(list string, op namelist.Operation) bool {
	ctx, cancel := context.WithTimeout(m.ctx, endTimeout)
	defer cancel()
	h, err := m.control.Head(ctx, list)
	return freeslot.CodeOf(err) == freeslot.CodeNotFound || err == nil && (h.Op.ID != op.ID || h.Op.Holder != op.Holder)
}

// work runs do in the background, under the lease of an operation. The context of do ends when the
// lease is lost, or when the manager stops. If do fails, the operation is rolled back.
func (m *Manager) work(list string, op namelist.Operation, do func(ctx context.Context) error) error {
	release := func() {}
	if op.Kind != namelist.OpSwitch { // a switch only waits, and needs no slot
		select {
		case m.slots <- struct{}{}:
			release = func() { <-m.slots }
		default:
			err := overloaded("this replica makes %d versions of lists already; try again, or another replica", maxBuilds)
			m.giveUp(list, op, err)
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		release()
		return errStopped
	}
	m.loops.Go(func() {
		defer release()
		begin, result := time.Now(), "done"
		m.metrics.running.Inc()
		defer func() {
			m.metrics.running.Dec()
			m.metrics.operations.WithLabelValues(string(op.Kind), result).Observe(time.Since(begin).Seconds())
		}()
		ctx, cancel := context.WithCancelCause(m.ctx)
		var renewing sync.WaitGroup
		renewing.Go(func() { m.renew(ctx, cancel, list, op) })
		err := do(ctx)
		lost := context.Cause(ctx)
		cancel(nil)
		renewing.Wait()
		if err != nil && m.ctx.Err() == nil {
			m.clear(op)
		}
		switch {
		case err == nil:
			m.forget(op)
		case m.ctx.Err() != nil:
			result = "interrupted"
			m.log.Info("lists.operation_interrupted", zap.String("list", list), zap.String("operation", op.ID))
			if op.Kind == namelist.OpSwitch { // no later process continues it
				m.giveUp(list, op, errStopped)
			}
		case errors.Is(err, errCancelled):
			result = "lost"
			m.log.Info(
				"lists.operation_cancelled", zap.String("list", list), zap.String("kind", string(op.Kind)),
				zap.String("operation", op.ID),
			)
			m.sweep(list, op)
		case lost != nil:
			result = "lost"
			m.log.Warn("lists.operation_lost", zap.String("list", list), zap.String("operation", op.ID), zap.Error(lost))
			m.sweep(list, op)
		default:
			result = "failed"
			m.log.Warn("lists.operation_failed", zap.String("list", list), zap.String("kind", string(op.Kind)), zap.Error(err))
			m.giveUp(list, op, err)
		}
	})
	return nil
}

// renew keeps the lease, and cancels the work when it is lost.
func (m *Manager) renew(ctx context.Context, cancel context.CancelCauseFunc, list string, op namelist.Operation) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	held := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := m.control.Renew(ctx, list, op)
		switch {
		case err == nil:
			held = time.Now()
		case isAnswer(err), time.Since(held) > namelist.Lease:
			cancel(fmt.Errorf("the lease is lost: %w", err))
			return
		}
	}
}

// giveUp ends an operation without result, and removes what it wrote.
func (m *Manager) giveUp(list string, op namelist.Operation, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), endTimeout)
	defer cancel()
	if _, err := m.control.Cancel(ctx, list, op.ID); err != nil && !isAnswer(err) {
		m.log.Warn(
			"lists.operation_not_cancelled", zap.String("list", list), zap.NamedError("for", why),
			zap.Error(err),
		)
		return
	}
	m.sweep(list, op)
}

// sweep removes what a build wrote without becoming a version.
func (m *Manager) sweep(list string, op namelist.Operation) {
	r, known := m.forget(op)
	if !known {
		r = op.Reservation
	}
	if r.Segments == 0 {
		return // nothing was written
	}
	v := namelist.Version{Number: op.Number, Build: op.ID, Server: r.Server, Segments: r.Segments}
	if r.Blocks > 0 {
		v.BlockBits, v.FilterBytes = uint8(bits.Len32(r.Blocks)-1), 1
	}
	m.removeLater(list, v)
}

// removeLater queues a version's keys for removal.
func (m *Manager) removeLater(list string, v namelist.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, endedBuild{list: list, version: v})
}

func (m *Manager) forget(op namelist.Operation) (namelist.Reservation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.wrote[op.ID]
	delete(m.wrote, op.ID)
	return r, known
}

// clear removes the folder of a build that does not continue.
func (m *Manager) clear(op namelist.Operation) {
	if err := os.RemoveAll(m.buildFolder(op)); err != nil {
		m.log.Warn("lists.folder_not_removed", zap.String("operation", op.ID), zap.Error(err))
	}
}

func (m *Manager) buildFolder(op namelist.Operation) string {
	return filepath.Join(m.cfg.Dir, "builds", op.ID)
}
