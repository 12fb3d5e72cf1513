package cell

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestCheckNotServing: one of two servers answers, and cannot serve now. It is down,
// and is checked when it serves again.
func TestCheckNotServing(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct{ harm, mend [][]string }{
		"READONLY": {
			harm: [][]string{{"REPLICAOF", "127.0.0.1", "1"}},
			mend: [][]string{{"REPLICAOF", "NO", "ONE"}},
		},
		"MASTERDOWN": {
			harm: [][]string{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			mend: [][]string{{"REPLICAOF", "NO", "ONE"}},
		},
		"NOREPLICAS": {
			harm: [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}},
			mend: [][]string{{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		},
	} {
		for state, recorded := range map[string]bool{"new": false, "known": true} {
			t.Run(code+"/"+state, func(t *testing.T) {
				t.Parallel()
				a, b := redistest.New(t), redistest.New(t)
				s := newSet(t, a.Prefix(t), 4, a.Target, b.Target)
				if recorded {
					if _, down, err := s.Check(t.Context()); err != nil || len(down) != 0 {
						t.Fatal(down, err)
					}
				}
				run(t, b.Target, c.harm...)
				_, down, err := s.Check(t.Context())
				if err != nil || len(down) != 2 || down[1] == nil || down[3] == nil || !strings.Contains(down[1].Error(), code) {
					t.Errorf("down %v, error %v", down, err)
				}
				run(t, b.Target, c.mend...)
				if _, err := s.At(1).Check(t.Context()); err != nil {
					t.Errorf("when it serves again: %v", err)
				}
			})
		}
	}
}

func run(t *testing.T, redis *redistest.Target, commands ...[]string) {
	t.Helper()
	client := redis.Client(t)
	for _, args := range commands {
		if err := client.Do(t.Context(), client.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatalf("%q: %v; want no error", args, err)
		}
	}
}

// TestUnreachable: which answers pass by themselves.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for text, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                    true,
		"READONLY You can't write against a read only replica. script: x":   true,
		"MASTERDOWN Link with MASTER is down":                               true,
		"CLUSTERDOWN The cluster is down":                                   true,
		"TRYAGAIN Multiple keys request during rehashing of slot":           true,
		"MISCONF Redis is configured to save RDB snapshots, but is unable":  true,
		"NOREPLICAS Not enough good replicas to write.":                     true,
		"NOPERM this user has no permissions to run the 'set' command":      false,
		"WRONGTYPE Operation against a key holding the wrong kind of value": false,
		"ERR x LOADING":           false,
		"OOM command not allowed": false, // somebody must make room
	} {
		cmd := client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()
		// A client tries some of them again until its time is over.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := client.Do(ctx, cmd).Error()
		cancel()
		if err == nil {
			t.Fatalf("%s: no error", text)
		}
		if got := errors.As(unreachableOr(err), new(*unreachableError)); got != want {
			t.Errorf("%s: unreachable is %v, want %v", text, got, want)
		}
	}
	if err := unreachableOr(refuse("x")); errors.As(err, new(*unreachableError)) || err == nil {
		t.Errorf("a finding: %v", err)
	}
	if err := unreachableOr(nil); err != nil {
		t.Error(err)
	}
	if err := unreachableOr(context.DeadlineExceeded); !errors.As(err, new(*unreachableError)) {
		t.Errorf("no answer: %v", err)
	}
}

// TestCheckRecordWritesNothing: what an agent compares with, and that it decides nothing.
func TestCheckRecordWritesNothing(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		wrong, right := newSet(t, prefix, 2, redis), newSet(t, prefix, 4, redis)
		if err := wrong.At(0).CheckRecord(t.Context()); err != nil {
			t.Errorf("nothing is recorded yet: %v", err)
		}
		if _, _, err := right.Check(t.Context()); err != nil {
			t.Fatalf("the agent has spoiled it: %v", err)
		}
		if err := wrong.At(1).CheckRecord(t.Context()); err == nil || !strings.Contains(err.Error(), " was made with 4") {
			t.Errorf("2 of 4 cells: %v", err)
		}
		if err := right.At(3).CheckRecord(t.Context()); err != nil {
			t.Error(err)
		}
		run(t, redis, []string{"SET", right.At(0).layout.Schema(), strconv.Itoa(SchemaVersion + 1)})
		if err := right.At(0).CheckRecord(t.Context()); err == nil || !strings.Contains(err.Error(), "written by a newer release") {
			t.Errorf("another schema: %v", err)
		}
	})
}
