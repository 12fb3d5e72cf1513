package script

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestReplicated: a call counts once a replica has it; without one it is done, and does not count.
func TestReplicated(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	waits := func(timeout time.Duration) *rig {
		return newRig(t, redis.Target, func(c *Config) { c.Acknowledge = Acknowledge{Replicas: 1, Timeout: timeout} })
	}
	patient, hasty := waits(patience), waits(250*time.Millisecond)
	hasty.key = patient.key
	never := func(rueidis.RedisResult) bool { return false }
	ways := map[string]func(r *rig) error{
		"replicated": func(r *rig) error {
			return r.CallReplicated(r.ctx(), lists["append"], []string{r.key}, []string{"x"}).Error()
		},
		"confirmed": func(r *rig) error {
			return r.CallConfirmed(r.ctx(), lists["append"], []string{r.key}, []string{"x"}, never).Error()
		},
		"confirm": func(r *rig) error { return r.Confirm(r.ctx()) },
		"one connection": func(r *rig) error {
			return r.OneConnection(func(on *Conn) error {
				return errors.Join(on.Call(r.ctx(), lists["length"], []string{r.key}, nil).Error(), on.Confirm(r.ctx()))
			})
		},
	}
	for what, f := range ways {
		if err := f(patient); err != nil {
			t.Errorf("%s: %v; want no error", what, err)
		}
	}
	if n, err := patient.ReplicasOnline(t.Context()); err != nil || n != 1 {
		t.Errorf("%d replicas, %v", n, err)
	}
	redis.Replicas[0].Pause()
	before := len(patient.values())
	for what, f := range ways {
		if err := f(hasty); !errors.Is(err, ErrNotReplicated) {
			t.Errorf("%s: %v, expected ErrNotReplicated", what, err)
		}
	}
	if got := len(patient.values()); got != before+2 {
		t.Errorf("%d values, expected %d: what was not confirmed is done", got, before+2)
	}
	refused := func(rueidis.RedisResult) bool { return true }
	if err := hasty.CallConfirmed(t.Context(), lists["length"], []string{hasty.key}, nil, refused).Error(); err != nil {
		t.Errorf("a refusal waits for replicas: %v", err)
	}
	redis.Replicas[0].Resume()
	for what, f := range ways {
		if err := f(patient); err != nil {
			t.Errorf("%s: %v; want no error", what, err)
		}
	}
}

// TestReplicatedMoved: a call goes to the master that has the cell, also when the cell has just
// moved.
func TestReplicatedMoved(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	r := newRig(t, redis.Target, func(c *Config) { c.Acknowledge = Acknowledge{Replicas: 1, Timeout: patience} })
	call := func() {
		t.Helper()
		if err := r.CallReplicated(r.ctx(), lists["append"], []string{r.key}, []string{"x"}).Error(); err != nil {
			t.Fatal(err)
		}
	}
	call()
	slot, _ := r.Layout().Slot()
	owner := redis.Owner(uint16(slot))
	for _, to := range redis.Processes()[:3] {
		if to != owner {
			redis.MigrateSlot(uint16(slot), to)
			break
		}
	}
	call()
	if got := r.values(); len(got) != 2 {
		t.Errorf("%q; want len(got) == 2", got)
	}
}

// TestReplicationTimeout: the wait ends before the call's deadline does.
func TestReplicationTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.Acknowledge = Acknowledge{Replicas: 1, Timeout: time.Hour} })
	ctx, cancel := context.WithTimeout(r.ctx(), 100*time.Millisecond)
	defer cancel()
	cmd := r.wait(ctx)
	if args := cmd.Commands(); len(args) != 3 || args[1] != "1" || len(args[2]) > 3 {
		t.Errorf(`%q; want len(args) == 3, args[1] == "1", len(args[2]) <= 3`, args)
	}
	if err := (Acknowledge{Replicas: 17}).Validate(); err == nil {
		t.Error("17 replicas")
	}
	if err := (Acknowledge{Replicas: 1, Timeout: time.Microsecond}).Validate(); err == nil {
		t.Error("a microsecond")
	}
}

// TestReplicaOnline: those that have fallen silent do not count.
func TestReplicaOnline(t *testing.T) {
	t.Parallel()
	for line, online := range map[string]bool{
		"slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=1":  true,
		"slave12:ip=10.0.0.7,port=6379,state=online,offset=42,lag=5": true,
		"slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=6":  false,
		"slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=x":  false,
		"slave0:ip=10.0.0.7,port=6379,state=wait_bgsave,offset=0":    false,
		"slave_repl_offset:42":      false,
		"connected_slaves:1":        false,
		"slave0":                    false,
		"":                          false,
		"slavex:state=online,lag=0": false,
	} {
		if got := replicaOnline(line, replicaSilence); got != online {
			t.Errorf("%q: %t; want got == %v", line, got, online)
		}
		at, isReplica := replicaAddress(line)
		if want := strings.Contains(line, "ip="); isReplica != want || want && at != "10.0.0.7:6379" {
			t.Errorf("the address in %q is %q, %v; want 10.0.0.7:6379, %v", line, at, isReplica, want)
		}
	}
}

func FuzzReplicaOnline(f *testing.F) {
	f.Add("slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=1")
	f.Add("slave0:state=online,state=wait_bgsave,lag=")
	f.Fuzz(func(t *testing.T, line string) {
		if replicaOnline(line, replicaSilence) && (!strings.HasPrefix(line, "slave") || !strings.Contains(line, "state=online")) {
			t.Errorf("%q is taken for a replica that keeps up", line)
		}
	})
}
