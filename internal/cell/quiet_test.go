package cell

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestQuietQueuesCostNothing: a completion does not look at the queues that its node once
// served where nobody waits in them any more, nor at others than those where somebody does.
func TestQuietQueuesCostNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.At("alone", false, redistest.New(t).Process().Addr())) // its accounts are of this test alone
	epoch := r.register(testNode("n1", 2))
	r.do("SET", r.l.ServesVersion(), "1")
	classes := make([]string, 31)
	for i := range classes {
		classes[i] = fmt.Sprintf("%016x", i)
	}
	r.do("SET", r.l.Serves("n1"), "1 "+strings.Join(append(classes, echo), " "))
	looks := func(f func()) int64 {
		before := r.commands("zrange")
		f()
		return r.commands("zrange") - before
	}
	alone, first := r.place("", 1, "n1"), r.place("", 1, "n1")
	if n := looks(func() { r.end("n1", epoch, alone) }); n != 0 {
		t.Errorf("%d looks at queues while nobody waits", n)
	}
	second := r.place("", 1, "n1")
	next := r.waits("")
	if n := looks(func() { r.end("n1", epoch, first) }); n == 0 || n > 3 {
		t.Errorf("%d looks at queues while one job waits", n)
	}
	r.end("n1", epoch, next)
	r.end("n1", epoch, second)
	r.sound()
}

// TestForeignJobsWait: a job that waits for other nodes costs a completion two commands, and it
// stays plain; a job of a class that the node serves gets the slot. Where nobody waits no
// completion asks for classes.
func TestForeignJobsWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.At("alone", false, redistest.New(t).Process().Addr())) // its accounts are of this test alone
	r.scripts = countPlain(t)
	must(t, r.OpenReplies(r.ctx(), "r1"))
	must(t, r.ConfigSeen(r.ctx(), 1))
	epoch := r.register(testNode("n1", 1))
	r.take("n1")
	ends := func(what string, asks, plain int64, c Completion) {
		t.Helper()
		classes, queues, before := r.commands("mget"), r.commands("zrange"), r.plainEnds()
		r.complete1(c)
		if n := r.commands("mget") - classes; n != asks {
			t.Errorf("%s: classes are asked for %d times, want %d", what, n, asks)
		}
		if n := int64(r.plainEnds() - before); n != plain {
			t.Errorf("%s: %d plain ends, want %d", what, n, plain)
		}
		if n := r.commands("zrange") - queues; (n != 0) != (asks > plain) {
			t.Errorf("%s: %d looks at queues", what, n)
		}
	}
	ends("nobody waits", 0, 1, succeed("n1", epoch, r.place("r1", 1, "n1")))
	failed := r.fails("n1", epoch, r.place("r1", 1, "n1"), Retry)
	failed.RetryDelay = time.Hour
	ends("nobody waits and one is tried again", 0, 0, failed)
	foreign := r.waits("r1", service("tts"))
	ends("a foreign job waits", 1, 1, succeed("n1", epoch, r.place("r1", 1, "n1")))
	running := r.place("r1", 1, "n1")
	next := r.waits("r1")
	ends("a job of the node waits", 1, 0, succeed("n1", epoch, running))
	if s, other := r.status(next), r.status(foreign); s.State != freeslot.StateRunning || other.State != freeslot.StateWaiting {
		t.Errorf("%+v, the foreign one %+v", s, other)
	}
	r.do("DEL", r.l.key("plain", ""))
	r.sound()
}

// commands is how often the server has carried out a command, by scripts too.
func (r *rig) commands(name string) int64 {
	r.t.Helper()
	m := r.do("INFO", "commandstats")
	text, err := m.ToString()
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, found := strings.Cut(text, "cmdstat_"+name+":calls=")
	if !found {
		return 0
	}
	count, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}
