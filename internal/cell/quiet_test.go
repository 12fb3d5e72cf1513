package cell

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/redis/redistest"
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
