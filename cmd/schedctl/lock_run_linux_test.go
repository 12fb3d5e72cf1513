package main

import (
	"io"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestLockRunKilled: the command ends with schedctl, and the lock when its lease is over.
func TestLockRunKilled(t *testing.T) {
	t.Parallel()
	l := newLocking(t, redistest.Shared(t))
	cmd, lines := l.process(`trap "" TERM; echo started; ` + forever)
	must(t, cmd.Process.Kill())
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 { // until no process has the output open
		t.Errorf("%q %v; want no error, len(rest) <= 0", rest, err)
	}
	_ = cmd.Wait()
	if s := l.state(); s.Token == 0 || s.Left <= 0 {
		t.Errorf("%+v; want s.Token != 0, s.Left > 0", s)
	}
}
