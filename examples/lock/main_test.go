//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asFirst {
		main()
		return
	}
	redistest.Main(m)
}

// TestWokenHolder: what the holder writes that was stopped and woken is refused, and it learns that
// it has lost the lock.
func TestWokenHolder(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx := waittest.Context(t)
	var out strings.Builder
	if err := second(ctx, redis.URL(), redis.Prefix(t), &out); err != nil {
		t.Fatal(err, out.String())
	}
	for _, part := range []string{
		"first: I have the lock and write now\nsecond: I had the lock and wrote; error: <nil>\nfirst: stale token: true\nfirst: my lock: lock lost: ",
		"\nthe record is of the second\n",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, &out)
		}
	}
}
