package presence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const patience = waittest.Limit

// begin starts a presence whose changes come out of the channel.
func begin(t *testing.T, b Backend, replica string, interval time.Duration) (*Presence, <-chan []string) {
	t.Helper()
	changes := make(chan []string, 100)
	p := New(Config{Replica: replica, Interval: interval, OnChange: func(all []string) { changes <- all }}, b, zaptest.NewLogger(t))
	p.Start()
	t.Cleanup(func() { end(t, p) })
	return p, changes
}

func end(t *testing.T, p *Presence) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, changes <-chan []string, want ...string) {
	t.Helper()
	for {
		got := waittest.Receive(t, fmt.Sprintf("a change to %v", want), changes)
		if slices.Equal(got, want) {
			return
		}
		t.Logf("passed over %v", got)
	}
}

func TestReplicasLearnOfEachOther(t *testing.T) {
	t.Parallel()
	c := NewStore(scripttest.NewRig(t, redistest.Shared(t)).Runner)
	const interval = 100 * time.Millisecond
	_, first := begin(t, c, "a", interval)
	second, also := begin(t, c, "b", interval)
	expect(t, first, "a", "b")
	expect(t, also, "a", "b")
	end(t, second)
	expect(t, first, "a")
}

// TestLearnsThatItIsAlone: the first answer is told although nobody else is there, and told once.
func TestLearnsThatItIsAlone(t *testing.T) {
	t.Parallel()
	b := &backend{answers: make(chan func() ([]Replica, error)), left: make(chan string, 1)}
	_, changes := begin(t, b, "a", time.Millisecond)
	say := func(names ...string) { b.answers <- func() ([]Replica, error) { return replicas(names...), nil } }
	say("a")
	say("a")
	say("a", "b")
	for _, want := range [][]string{{"a"}, {"a", "b"}} {
		if got := waittest.Receive(t, fmt.Sprintf("a change to %v", want), changes); !slices.Equal(got, want) {
			t.Errorf("changed to %v, expected %v", got, want)
		}
	}
}

// backend answers what it is told to.
type backend struct {
	answers chan func() ([]Replica, error)
	left    chan string
}

func (b *backend) Present(ctx context.Context, _ Replica, _ time.Duration) ([]Replica, error) {
	select {
	case answer := <-b.answers:
		return answer()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *backend) Leave(_ context.Context, replica string, _ time.Duration) error {
	b.left <- replica
	return errors.New("away")
}

func replicas(names ...string) []Replica {
	all := make([]Replica, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	return all
}

// TestHeartbeatLimitsDiffer: readiness and the log say so for as long as it is so.
func TestHeartbeatLimitsDiffer(t *testing.T) {
	t.Parallel()
	b := &backend{answers: make(chan func() ([]Replica, error)), left: make(chan string, 1)}
	logs, seen := observer.New(zap.InfoLevel)
	p := New(Config{Replica: "a", HeartbeatLimit: 8 * time.Second, Interval: time.Millisecond}, b, zap.New(logs))
	p.Start()
	t.Cleanup(func() { end(t, p) })
	said := func(want string, all ...Replica) {
		t.Helper()
		for range 2 { // the second call begins after the first answer was taken in
			b.answers <- func() ([]Replica, error) { return all, nil }
		}
		if ok, detail := p.Ready(); !ok || detail != want {
			t.Errorf("readiness is %t and says %q, expected %q", ok, detail, want)
		}
	}
	own, same, old := Replica{Name: "a", HeartbeatLimit: 8 * time.Second}, Replica{Name: "b", HeartbeatLimit: 8 * time.Second}, Replica{Name: "c", HeartbeatLimit: 0}
	said("", own, same, old)
	said("degraded: heartbeat_limit is 8s here and 3s at d, 20s at e; the shortest one decides when a silent node loses its jobs",
		own, same, Replica{Name: "d", HeartbeatLimit: 3 * time.Second}, Replica{Name: "e", HeartbeatLimit: 20 * time.Second})
	said("", own, same)
	var lines []string
	for _, line := range seen.All() {
		if line.Message != "presence.changed" {
			lines = append(lines, line.Message)
		}
	}
	if want := []string{"presence.heartbeat_limits_differ", "presence.heartbeat_limits_agree"}; !slices.Equal(lines, want) {
		t.Errorf("logged %v, expected %v", lines, want)
	}
}

// While Redis does not answer, the last answer holds; one who leaves says so once, and
// ends all the same when nobody hears it.
func TestLastAnswerHolds(t *testing.T) {
	t.Parallel()
	b := &backend{answers: make(chan func() ([]Replica, error)), left: make(chan string, 2)}
	p, changes := begin(t, b, "a", time.Millisecond)
	say := func(names ...string) { b.answers <- func() ([]Replica, error) { return replicas(names...), nil } }
	say("a")
	say("a", "b")
	expect(t, changes, "a", "b")
	for range 3 {
		b.answers <- func() ([]Replica, error) { return nil, errors.New("away") }
	}
	say("a", "b")
	say("a", "c")
	if got := <-changes; !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("changed to %v in between", got)
	}
	end(t, p)
	end(t, p)
	if len(b.left) != 1 || <-b.left != "a" {
		t.Error("did not leave once")
	}
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	b := &backend{left: make(chan string, 1)}
	p := New(Config{Replica: "a"}, b, zaptest.NewLogger(t))
	end(t, p)
	p.Start()
	end(t, p)
}
