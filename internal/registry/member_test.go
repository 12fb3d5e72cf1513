package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/heartbeat"
)

// life is a member with a clock of its own.
type life struct {
	*member
	t   *testing.T
	now time.Time
}

func newLife(t *testing.T) *life {
	t.Helper()
	o := Options{}.WithDefaults()
	o.Heartbeat.Jitter = nil
	o.Heartbeat.Thresholds = map[string]heartbeat.Threshold{"cpu.usage": {Kind: heartbeat.Any}}
	return &life{member: newMember(registration("s", "a"), o.Heartbeat), t: t, now: time.Unix(1e9, 0)}
}

// step wants a task, and ends it with an answer.
func (l *life) step(want task, a answer, err error) {
	l.t.Helper()
	l.wants(want)
	l.begin(want, l.now, nil)
	l.end(l.now, a, err)
}

func (l *life) wants(want task) {
	l.t.Helper()
	if got, _ := l.next(l.now, nil); got != want {
		l.t.Fatalf("task %d, expected %d; %+v", got, want, l.status())
	}
}

func (l *life) pass(d time.Duration) { l.now = l.now.Add(d) }

func other(epoch, host string, silent time.Duration, registered int64) answer {
	return answer{code: codeHolder, registered: registered, holder: &HolderError{Epoch: epoch, Host: host, Port: 8080, Silent: silent, Interval: 10 * time.Second}}
}

func TestMemberBeats(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.step(taskRegister, answer{code: codeDone, registered: 1000}, nil)
	l.wants(taskNone)
	for range 5 {
		l.pass(10 * time.Second)
		l.step(taskBeat, answer{code: codeDone}, nil)
	}
	l.pass(10 * time.Second)
	l.step(taskRegister, answer{code: codeSame, registered: 1000}, nil) // the metadata interval
	// Metrics that change are sent alone, not sooner than a second after the last ones.
	l.pass(500 * time.Millisecond)
	metrics := heartbeat.Metrics{"cpu.usage": 0.5}
	if got, wait := l.next(l.now, metrics); got != taskNone || wait != 500*time.Millisecond {
		t.Errorf("task %d, after %s", got, wait)
	}
	l.pass(500 * time.Millisecond)
	if got, _ := l.next(l.now, metrics); got != taskMetrics {
		t.Errorf("task %d", got)
	}
	l.begin(taskMetrics, l.now, metrics)
	l.end(l.now, answer{code: codeDiffer}, nil) // and Redis has other content
	l.step(taskRegister, answer{code: codeDone, registered: 1000}, nil)
}

// TestMemberRetries: failures end with a pause that grows, and is never longer than an interval.
func TestMemberRetries(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.step(taskRegister, answer{code: codeDone, registered: 1000}, nil)
	l.pass(10 * time.Second)
	down := errors.New("down")
	l.step(taskBeat, answer{}, down)
	last := time.Duration(0)
	for range 100 {
		task, wait := l.next(l.now, nil)
		if task != taskNone || wait <= 0 || wait > 5*time.Second {
			t.Fatalf("task %d, after %s", task, wait)
		}
		last = wait
		l.pass(wait)
		got, _ := l.next(l.now, nil)
		l.step(got, answer{}, down)
	}
	if last < 2*time.Second || l.status().Err == nil || !l.status().Registered {
		t.Errorf("the pause is %s, %+v", last, l.status())
	}
	l.pass(time.Minute)
	l.step(taskRegister, answer{code: codeSame, registered: 1000}, nil)
	if s := l.status(); s.Err != nil || s.LastBeat != l.now {
		t.Errorf("%+v; want no error, s.LastBeat == %v", s, l.now)
	}
	// Redis has forgotten it.
	l.pass(10 * time.Second)
	l.step(taskBeat, answer{code: codeGone}, nil)
	if s := l.status(); s.Registered || !errors.Is(s.Err, ErrUnknown) {
		t.Errorf("%+v", s)
	}
	l.wants(taskNone)
	l.pass(firstRetry)
	l.step(taskRegister, answer{code: codeDone, registered: 2000}, nil)
	// No memory: it goes on trying at least once an interval, and each try is a heartbeat.
	l.set(registration("s", "a", func(r *Registration) { r.Weight = new(2.0) }))
	for range 20 {
		l.step(taskRegister, answer{code: codeFull}, nil)
		if _, wait := l.next(l.now, nil); wait > 5*time.Second {
			t.Fatal(wait)
		}
		l.pass(5 * time.Second)
	}
	if s := l.status(); !s.Registered || !errors.Is(s.Err, errFull) {
		t.Errorf("%+v; want s.Registered, errors.Is(s.Err, errFull)", s)
	}
}

func TestMemberHolders(t *testing.T) {
	t.Parallel()
	// Another one from the same address gives way at once; it is asked for again if another racer
	// was quicker.
	l := newLife(t)
	l.step(taskRegister, other("e9", "10.0.0.1", 0, 500), nil)
	if l.replaces != "e9" {
		t.Error(l.replaces)
	}
	l.step(taskRegister, other("e10", "10.0.0.1", 0, 600), nil)
	l.wants(taskNone) // no tight loop
	l.pass(firstRetry * 2)
	if l.replaces != "e10" {
		t.Error(l.replaces)
	}
	l.step(taskRegister, answer{code: codeDone, registered: 1000}, nil)
	// A newer holder: the end.
	l.pass(10 * time.Second)
	l.step(taskBeat, other("e11", "10.0.0.1", time.Hour, 1001), nil)
	if s := l.status(); !s.Holder.Superseded || s.Registered || !errors.Is(s.Err, ErrSuperseded) {
		t.Errorf("%+v", s)
	}
	l.pass(time.Hour)
	l.wants(taskNone)
	if err := <-l.ask(); !errors.Is(err, ErrSuperseded) {
		t.Error(err)
	}

	// From elsewhere: it tries again each interval, and takes over when the holder has been silent
	// for three.
	l = newLife(t)
	l.step(taskRegister, other("e9", "10.0.0.2", 4*time.Second, 500), nil)
	if s := l.status(); s.Holder.Superseded || s.Holder.Epoch != "e9" {
		t.Errorf("%+v", s)
	}
	if _, wait := l.next(l.now, nil); wait < 10*time.Second || wait > 12*time.Second {
		t.Error(wait)
	}
	l.pass(28 * time.Second)
	l.step(taskRegister, other("e9", "10.0.0.2", 32*time.Second, 500), nil)
	l.pass(firstRetry * 4)
	if l.replaces != "e9" {
		t.Errorf("it replaces %q", l.replaces)
	}
	l.step(taskRegister, answer{code: codeDone, registered: 1000}, nil)

	// An older holder has come back with old data of Redis. It does not supersede.
	l.pass(10 * time.Second)
	l.step(taskBeat, other("e8", "10.0.0.1", time.Hour, 900), nil)
	if l.superseded() || l.replaces != "e8" {
		t.Errorf(`%+v; want not l.superseded(), l.replaces == "e8"`, l.status())
	}
	l.step(taskRegister, answer{code: codeDone, registered: 3000}, nil)
}
