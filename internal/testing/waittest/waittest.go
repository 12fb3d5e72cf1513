// Package waittest waits in tests, and gives up only when nothing has moved for a minute.
//
//	waittest.Until(t, "all jobs end", func() bool { return ended.Load() == jobs },
//		func() any { return ended.Load() })
//	id := waittest.Receive(t, "the id of the job", ids)
//
// A busy machine makes a test slow, not red: as long as one of the watched values changes, the test
// goes on, until the limit of go test for the whole package. A watching function returns what has
// come so far, such as a count or a state; the failure message shows it. Without such a function,
// Until and Receive wait for one step, which has the minute to itself.
//
// Time in which the test process itself stood still counts at most one second each time.
package waittest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Limit is how long nothing must move before a test fails.
const Limit = time.Minute

const (
	firstPause   = time.Millisecond
	longestPause = 20 * time.Millisecond
	// between is how often Receive looks at what it watches. A stall of the process counts at most
	// that much.
	between = time.Second
	// toReport is the part of the package's limit that the context of Context leaves unused.
	toReport = 10 * time.Second
)

// Until polls until done returns true. want tells in the failure message what was expected.
func Until(tb testing.TB, want string, done func() bool, watch ...func() any) {
	tb.Helper()
	s := start(watch)
	for pause := firstPause; !done(); pause = min(2*pause, longestPause) {
		if s.over() {
			tb.Fatalf("expected %s, but nothing moved for %s%s", want, Limit, s.last())
		}
		time.Sleep(pause)
	}
}

// Succeeds polls until try returns nil. It watches the text of the error.
func Succeeds(tb testing.TB, want string, try func() error) {
	tb.Helper()
	var err error
	Until(tb, want, func() bool { err = try(); return err == nil }, func() any { return err })
}

// Receive returns the next value of ch, or the zero value if ch is closed. want tells in the
// failure message what was expected.
func Receive[T any](tb testing.TB, want string, ch <-chan T, watch ...func() any) T {
	tb.Helper()
	s := start(watch)
	tick := time.NewTicker(between)
	defer tick.Stop()
	for {
		select {
		case v := <-ch:
			return v
		case <-tick.C:
		}
		if s.over() {
			tb.Fatalf("expected %s, but nothing came or moved for %s%s", want, Limit, s.last())
		}
	}
}

// Context returns a context for the calls of a test and of its Cleanup functions. It ends shortly
// before the limit of go test, so that a call that hangs can still be named. Do not call it in a
// bubble of testing/synctest, which has a time of its own.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, limited := t.Deadline(); limited {
			ctx, cancel := context.WithDeadline(context.Background(), end.Add(-toReport))
			tb.Cleanup(cancel)
			return ctx
		}
	}
	return context.Background()
}

// silence adds up the time in which nothing moved.
type silence struct {
	watch  []func() any
	seen   string
	looked time.Time
	lasted time.Duration
}

func start(watch []func() any) *silence {
	s := &silence{watch: watch, looked: time.Now()}
	s.seen = s.look()
	return s
}

func (s *silence) look() string {
	var b strings.Builder
	for _, w := range s.watch {
		fmt.Fprintf(&b, " %+v", w())
	}
	return b.String()
}

// over reports whether nothing has moved for Limit.
func (s *silence) over() bool {
	now := time.Now()
	s.lasted += min(now.Sub(s.looked), between)
	s.looked = now
	if seen := s.look(); seen != s.seen {
		s.seen, s.lasted = seen, 0
	}
	return s.lasted >= Limit
}

func (s *silence) last() string {
	if len(s.watch) == 0 {
		return ""
	}
	return "; last came:" + s.seen
}
