package waittest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing stands for a test that is expected to fail.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

// failure returns what a test failed with, "" if it did not, and how long it took.
func failure(t *testing.T, test func(tb testing.TB)) (message string, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &failing{TB: t}
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
			message, took = f.message, time.Since(begin)
		}()
		test(f)
	})
	return message, took
}

func expect(t *testing.T, message, want string, took, least, most time.Duration) {
	t.Helper()
	if (want == "") != (message == "") || !strings.Contains(message, want) {
		t.Errorf("failed with %q, expected %q", message, want)
	}
	if took < least || took > most {
		t.Errorf("it took %s, expected %s to %s", took, least, most)
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	message, took := failure(t, func(tb testing.TB) {
		Until(tb, "all ten", func() bool { return false }, func() any { return 7 })
	})
	expect(t, message, "expected all ten, but nothing moved for 1m0s; last came: 7", took, Limit, Limit+time.Second)

	message, took = failure(t, func(tb testing.TB) {
		begin, came := time.Now(), 0
		Until(tb, "all ten", func() bool {
			came = int(time.Since(begin) / (50 * time.Second))
			return came == 10
		}, func() any { return "the same" }, func() any { return came })
	})
	expect(t, message, "", took, 500*time.Second, 501*time.Second)
}

// A process that stood still has seen nothing, so the wait goes on.
func TestUntilOfAStalledProcess(t *testing.T) {
	t.Parallel()
	message, took := failure(t, func(tb testing.TB) {
		looks := 0
		Until(tb, "the third look", func() bool {
			looks++
			time.Sleep(5 * time.Minute) // virtual time; stands for SIGSTOP
			return looks == 3
		})
	})
	expect(t, message, "", took, 15*time.Minute, 16*time.Minute)
}

func TestSucceeds(t *testing.T) {
	t.Parallel()
	message, took := failure(t, func(tb testing.TB) {
		Succeeds(tb, "an answer", func() error { return errors.New("status 503") })
	})
	expect(t, message, "expected an answer, but nothing moved for 1m0s; last came: status 503", took, Limit, Limit+time.Second)

	message, took = failure(t, func(tb testing.TB) {
		left := 3
		Succeeds(tb, "an answer", func() error {
			if left--; left == 0 {
				return nil
			}
			return errors.New("none")
		})
	})
	expect(t, message, "", took, 0, time.Second)
}

func TestReceive(t *testing.T) {
	t.Parallel()
	message, took := failure(t, func(tb testing.TB) {
		Receive(tb, "the end", make(chan int), func() any { return "running" })
	})
	expect(t, message, "expected the end, but nothing came or moved for 1m0s; last came: running", took, Limit, Limit+2*time.Second)

	message, took = failure(t, func(tb testing.TB) {
		ch, begin := make(chan int, 1), time.Now()
		time.AfterFunc(10*time.Minute, func() { ch <- 7 })
		if got := Receive(tb, "the end", ch, func() any { return time.Since(begin) / (50 * time.Second) }); got != 7 {
			t.Errorf("received %d", got)
		}
	})
	expect(t, message, "", took, 10*time.Minute, 10*time.Minute)
}

func TestContext(t *testing.T) {
	t.Parallel()
	end, limited := t.Deadline()
	got, ends := Context(t).Deadline()
	if ends != limited || limited && !got.Before(end) {
		t.Errorf("the context ends at %s (%v), expected before %s (%v)", got, ends, end, limited)
	}
}
