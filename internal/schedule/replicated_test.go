package schedule

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestConfirmedIsReplicated: a confirmed change is there when the master dies at once. Without its replica it is in
// force, and not answered. A change that nobody waits for, and one that is refused, need no replica.
func TestConfirmedIsReplicated(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	layout := script.Layout{Prefix: redis.Prefix(t)}
	open := func(redis *redistest.Target, timeout time.Duration) *storeRig {
		return newStoreRig(t, scripttest.NewRig(t, redis, func(c *script.Config) {
			c.Layout, c.Acknowledge = layout, script.Acknowledge{Replicas: 1, Timeout: timeout}
		}))
	}
	patient, hasty := open(redis.Target, patience), open(redis.Target, 250*time.Millisecond)
	redis.Replicas[0].Pause()
	if _, err := hasty.write(t.Context(), write{id: "acme/a", state: "s", definition: "d", dueMS: 1, confirmed: true}); !errors.Is(err, script.ErrNotReplicated) {
		t.Errorf("%v, expected %v", err, script.ErrNotReplicated)
	}
	hasty.writes(true, write{id: "acme/b", state: "s", definition: "d"})
	hasty.writes(false, write{id: "acme/a", seen: "other", state: "s", confirmed: true})
	redis.Replicas[0].Resume()
	if err := patient.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	redis.Kill()
	redis.Promote(redis.Replicas[0])
	after := open(redis.Replicas[0].Target, patience)
	if record, _, err := after.read(t.Context(), "acme/a"); err != nil || record.state != "s" {
		t.Errorf(`%+v, %v; want no error, record.state == "s"`, record, err)
	}
}

// A change that Redis' replicas did not confirm is told of by no repetition before they have: neither as
// one that was made before, nor as one of a schedule that is gone or another version by now.
func TestRepeatedBeforeConfirmed(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	client, layout := redis.Target.Client(t), cell.Layouts(redis.Target.Prefix(t), 1, false)[0]
	service := func(timeout time.Duration) *Service {
		c, err := cell.New(cell.Config{
			Layout: layout, Cells: 1, HeartbeatLimit: time.Hour, CallTimeout: patience,
			Acknowledge: script.Acknowledge{Replicas: 1, Timeout: timeout},
		}, client, zaptest.NewLogger(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		(&rig{t: t}).runs(cell.NewSet(c))
		return NewService(cell.NewSet(c).Runners(), 1<<10, nil)
	}
	patient, hasty := service(patience), service(250*time.Millisecond)
	for _, name := range []string{"a", "b", "c"} {
		if _, _, err := patient.Put(t.Context(), tenant, name, change("0 0 * * *")); err != nil {
			t.Fatal(err)
		}
	}
	redis.Replicas[0].Pause()
	version := uint64(1)
	for what, call := range map[string]func(s *Service) error{
		"delete": func(s *Service) error { _, err := s.Delete(t.Context(), tenant, "a", nil); return err },
		"put": func(s *Service) error {
			_, _, err := s.Put(t.Context(), tenant, "b", change("1 0 * * *", func(c *Change) { c.Version = &version }))
			return err
		},
		"pause": func(s *Service) error { _, err := s.Pause(t.Context(), tenant, "c"); return err },
	} {
		for i := range 2 {
			if err := call(hasty); !errors.Is(err, cell.ErrNotReplicated) {
				t.Errorf("%s, time %d: %v", what, i+1, err)
			}
		}
	}
	redis.Replicas[0].Resume()
	if _, err := patient.Delete(t.Context(), tenant, "a", nil); err == nil || errors.Is(err, cell.ErrNotReplicated) {
		t.Errorf("deleted twice: %v", err)
	}
	if s, err := patient.Pause(t.Context(), tenant, "c"); err != nil || !s.Paused {
		t.Errorf("%+v, %v; want no error, s.Paused", s, err)
	}
}
