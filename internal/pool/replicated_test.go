package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestChangeIsReplicated: what is answered of a change is there when the master dies at once. Without its replica the
// change is in force, and not answered. A conflict needs no replica.
func TestChangeIsReplicated(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	layout := script.Layout{Prefix: redis.Prefix(t)}
	open := func(redis *redistest.Target, timeout time.Duration) *rig {
		return rigOn(t, scripttest.NewRig(t, redis, func(c *script.Config) {
			c.Layout, c.Acknowledge = layout, script.Acknowledge{Replicas: 1, Timeout: timeout}
		}))
	}
	patient, hasty := open(redis.Target, patience), open(redis.Target, 250*time.Millisecond)
	configure := func(r *rig, seen uint64) error {
		_, err := r.store.put(t.Context(), edit{seen: seen, content: []byte(`{"enabled":true}`)})
		return err
	}
	pause := func(r *rig, seen uint64) error {
		_, err := r.store.putPaused(t.Context(), edit{seen: seen, paused: []byte(`{"pools":["a"]}`)})
		return err
	}
	redis.Replicas[0].Pause()
	for what, err := range map[string]error{"configuration": configure(hasty, 0), "pause": pause(hasty, 1)} {
		if !errors.Is(err, script.ErrNotReplicated) {
			t.Errorf("%s: %v, expected %v", what, err, script.ErrNotReplicated)
		}
	}
	var conflict *ConflictError
	for what, err := range map[string]error{
		"configuration": func() error { _, err := hasty.store.put(t.Context(), editTo(7, "b")); return err }(),
		"pause": func() error {
			_, err := hasty.store.putPaused(t.Context(), edit{seen: 7, paused: []byte(`{}`)})
			return err
		}(),
	} {
		if !errors.As(err, &conflict) {
			t.Errorf("%s from another version: %v", what, err)
		}
	}
	redis.Replicas[0].Resume()
	if err := errors.Join(configure(patient, 2), pause(patient, 2)); err != nil {
		t.Error(err)
	}
	redis.Kill()
	redis.Promote(redis.Replicas[0])
	after := open(redis.Replicas[0].Target, patience).stored()
	if after.version != 2 || string(after.paused) != `{"pools":["a"]}` {
		t.Errorf("%+v; want after.version == 2, string(after.paused) == `{\"pools\":[\"a\"]}`", after)
	}
}
