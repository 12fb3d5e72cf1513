package registry

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/heartbeat"
)

const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
)

// task is what a member wants to send.
type task int

const (
	taskNone task = iota
	taskBeat
	taskMetrics  // a heartbeat with metrics
	taskPlace    // finds the host, before the first taskRegister
	taskRegister // brings content and metrics
	taskLeave
)

// member is one instance in a provider's care. It decides what is sent next, by the time that it is
// given, and does no I/O. Its service's mu guards it.
type member struct {
	reg      Registration
	fields   []string
	content  string
	decider  *heartbeat.Decider
	pending  task
	leaving  bool
	unplaced bool // its host is not known yet
	demanded bool // the next task is due at once

	// registeredAt is when Redis registered it for this provider, Redis' ms; 0 if never.
	registeredAt int64
	// there is true if Redis has it, as far as is known.
	there bool
	// holder is another provider that has the id. If it is Superseded, this member has stopped for
	// good.
	holder *HolderError
	// replaces is the epoch of a holder that gives way.
	replaces string

	notBefore time.Time // after a failure
	failures  int
	err       error
	begun     time.Time // of the pending task
	lastBeat  time.Time

	// waiters wait for the end of a task that has not begun, asked for the end of the pending task.
	waiters, asked []chan<- error
}

func newMember(reg Registration, policy heartbeat.Policy) *member {
	policy.HeartbeatInterval = reg.Interval
	policy.MetadataInterval = max(policy.MetadataInterval, reg.Interval)
	if reg.Persistent {
		policy.HeartbeatInterval = policy.MetadataInterval
	}
	m := &member{decider: heartbeat.New(policy)}
	m.set(reg)
	return m
}

// set changes the description of the instance.
func (m *member) set(reg Registration) {
	m.reg = reg
	m.fields, m.content = reg.fields()
	m.decider.Forget()
}

// place settles the host.
func (m *member) place(at where) error {
	reg, err := at.place(m.reg)
	if reg.ID == unplacedID(reg.Port) {
		reg.ID = ""
	}
	if err == nil {
		m.set(reg.WithDefaults())
		m.unplaced = false
	}
	return err
}

// over reports whether nothing more is sent for it, except its end, because another provider has
// its id, or its host was refused.
func (m *member) over() bool {
	return m.superseded() || freeslot.CodeOf(m.err) == freeslot.CodeInvalidArgument
}

func (m *member) superseded() bool { return m.holder != nil && m.holder.Superseded }

// next returns the task that is due. If that is taskNone, it also returns the time until one is.
func (m *member) next(now time.Time, metrics heartbeat.Metrics) (task, time.Duration) {
	switch {
	case m.pending != taskNone:
		return taskNone, heartbeat.Never
	case m.leaving && (m.demanded || !now.Before(m.notBefore)):
		return taskLeave, 0
	case m.leaving:
		return taskNone, m.notBefore.Sub(now)
	case m.over():
		return taskNone, heartbeat.Never
	}
	decision := m.decider.Decide(now, metrics)
	if m.demanded {
		decision = m.decider.Demand(now, metrics)
	} else if wait := m.notBefore.Sub(now); wait > 0 {
		return taskNone, wait
	}
	switch decision {
	case heartbeat.HeartbeatOnly:
		return taskBeat, 0
	case heartbeat.MetricsUpdate:
		return taskMetrics, 0
	case heartbeat.MetadataUpdate:
		if m.unplaced {
			return taskPlace, 0
		}
		return taskRegister, 0
	default:
		return taskNone, m.decider.Next(now, metrics)
	}
}

// begin records that a task is being sent.
func (m *member) begin(t task, now time.Time, metrics heartbeat.Metrics) {
	m.pending, m.begun, m.demanded = t, now, false
	m.asked, m.waiters = m.waiters, nil
	switch t {
	case taskBeat:
		m.decider.Begin(heartbeat.HeartbeatOnly, now, metrics)
	case taskMetrics:
		m.decider.Begin(heartbeat.MetricsUpdate, now, metrics)
	case taskRegister:
		m.decider.Begin(heartbeat.MetadataUpdate, now, metrics)
	}
}

// end records the outcome of the pending task. It returns true if the member has left.
func (m *member) end(now time.Time, a answer, err error) (left bool) {
	t := m.pending
	m.pending = taskNone
	again := false
	switch {
	case err != nil:
		m.failed(now, err)
	case a.supersedes(m.registeredAt):
		m.decider.Failed()
		m.supersede(a.holder)
		return false
	case t == taskPlace:
		again = true
	case t == taskLeave:
		m.drop(m.left(a))
		return true
	case a.code == codeHolder:
		again = m.held(now, a)
	case a.code == codeFull:
		m.failed(now, errFull)
	case a.code == codeGone:
		m.there = false
		m.failed(now, ErrUnknown)
		m.decider.Forget()
	default:
		m.succeeded(t, a)
	}
	if again { // this is not an outcome yet
		m.waiters, m.asked, m.demanded = slices.Concat(m.asked, m.waiters), nil, true
		return false
	}
	m.tell(m.err)
	return false
}

// supersede ends the member for good. It stays in its service, so that no later call starts it
// anew.
func (m *member) supersede(by *HolderError) {
	by.Superseded = true
	m.there, m.leaving, m.holder, m.replaces, m.err = false, false, by, "", by
	m.drop(by)
}

// left returns what is wrong with the end of a member, or nil.
func (m *member) left(a answer) error {
	if a.code == codeHolder && m.registeredAt != 0 {
		return a.holder
	}
	return nil
}

func (m *member) succeeded(t task, a answer) {
	m.decider.Succeeded()
	m.there, m.holder, m.replaces, m.failures, m.err, m.lastBeat = true, nil, "", 0, nil, m.begun
	m.notBefore = time.Time{}
	switch {
	case t == taskRegister:
		m.registeredAt = max(a.registered, 1)
	case a.code == codeDiffer:
		m.decider.Forget()
	}
}

// failed makes the task due again, after a pause that grows but never exceeds an interval.
func (m *member) failed(now time.Time, err error) {
	m.decider.Failed()
	m.err = err
	pause := follow.Backoff(firstRetry, min(longestRetry, m.reg.Interval), m.failures)
	m.failures++
	m.notBefore = now.Add(pause/2 + rand.N(pause/2+1))
}

// held handles a task that found another holder, which does not supersede this member. It returns
// true if the id can be taken at once.
//
// A holder that registered sooner than this member has come back with old data of Redis, or has not
// heard yet that it was superseded.
func (m *member) held(now time.Time, a answer) (again bool) {
	h := a.holder
	m.there, m.holder, m.replaces = false, h, ""
	m.decider.Forget()
	wait := 3*h.Interval - h.Silent
	if h.Interval == 0 { // it does not beat
		wait = longestRetry
	}
	// An instance that is draining does not take the id from a holder that may go on.
	same := h.Host == m.reg.Host && h.Port == m.reg.Port && !m.reg.Draining
	if same || wait <= 0 || m.registeredAt != 0 {
		m.replaces, wait = h.Epoch, 0
	}
	again = m.replaces != "" && m.failures == 0
	m.failed(now, h)
	if wait > 0 {
		// The holder may also deregister, so look again by then.
		wait = min(wait, m.reg.Interval)
		m.notBefore = now.Add(wait + rand.N(m.reg.Interval/10+firstRetry))
	}
	return again
}

// tell sends the outcome to everyone who asked for it.
func (m *member) tell(err error) {
	for _, w := range m.asked {
		w <- err // it has room for one
	}
	m.asked = nil
}

// drop ends the waiting of everyone who asks, for a member that sends nothing more.
func (m *member) drop(err error) {
	m.asked, m.waiters = slices.Concat(m.asked, m.waiters), nil
	m.tell(err)
}

// InstanceStatus is what a provider knows of one of its instances.
type InstanceStatus struct {
	Service, ID string
	// Registered is true if Redis has it, as far as is known. Draining is true if Stop or the
	// caller has marked it so.
	Registered, Draining bool
	// Holder is another provider that has the id. That is a conflict, or the end if Superseded.
	Holder *HolderError
	// LastBeat is when the last heartbeat that Redis has confirmed was sent, by the local clock.
	LastBeat time.Time
	// Err is the last failure since then.
	Err error
}

func (m *member) status() InstanceStatus {
	return InstanceStatus{
		Service: m.reg.Service, ID: m.reg.ID, Registered: m.there, Draining: m.reg.Draining,
		Holder: m.holder, LastBeat: m.lastBeat, Err: m.err,
	}
}

// ask makes the next task due, and returns the channel of its outcome.
func (m *member) ask() <-chan error {
	outcome := make(chan error, 1)
	if m.over() && !m.leaving {
		outcome <- m.err
		return outcome
	}
	m.waiters, m.demanded = append(m.waiters, outcome), true
	return outcome
}

// renewed returns next, which replaces m, with what m knows of Redis.
func (m *member) renewed(next *member) *member {
	next.there, next.lastBeat = m.there, m.lastBeat
	next.succeed(m)
	return next
}

// succeed takes over from another member with the same id that it was registered or is superseded.
func (m *member) succeed(before *member) {
	m.registeredAt = max(m.registeredAt, before.registeredAt)
	if before.superseded() {
		m.supersede(before.holder)
	}
}
