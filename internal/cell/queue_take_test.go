package cell

import (
	"fmt"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
)

// TestTakeOrder: among the classes that a node serves priority goes first, then age.
func TestTakeOrder(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		tts := ClassOf(&freeslot.Job{Service: "tts"}).ID
		want := []string{
			2: r.waits("", service("tts")), 3: r.waits(""), 4: r.waits("", service("tts")),
			0: r.waits("", priority(9)), 1: r.waits("", service("tts"), priority(4)),
		}
		other := r.waits("", service("other"), priority(9))
		for i, job := range want {
			if n := r.take("n1", echo, tts); n != 1 && i == 0 {
				t.Fatalf("%d began", n)
			}
			if s := r.status(job); s.State != freeslot.StateRunning {
				t.Fatalf("place %d: %+v", i, s)
			}
			r.end("n1", epoch, job) // which hands the slot over to the next
			r.sound()
		}
		if s := r.status(other); s.State != freeslot.StateWaiting {
			t.Errorf("a class that the node was not said to serve: %+v", s)
		}
	})
}

// TestTakeKeepsRoom: a job that needs more slots than are free is not passed by its class;
// one that the node is too small for is.
func TestTakeKeepsRoom(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 3))
		r.register(testNode("small", 1))
		running := r.place("", 2, "n1")
		large := r.waits("", slots(2))
		next, other := r.waits(""), r.waits("", service("tts"))
		if n := r.take("n1"); n != 0 {
			t.Errorf("%d jobs passed the large one", n)
		}
		if n := r.take("n1", echo, ClassOf(&freeslot.Job{Service: "tts"}).ID); n != 1 || r.status(other).State != freeslot.StateRunning {
			t.Errorf("of another class %d began", n)
		}
		if n := r.take("small"); n != 1 || r.status(next).Node != "small" {
			t.Errorf("on a node that the large one does not fit %d began", n)
		}
		hear := r.listen()
		r.end("n1", epoch, running)
		if s := r.status(large); s.State != freeslot.StateRunning || s.Node != "n1" {
			t.Errorf("the large one: %+v", s)
		}
		if heard := hear.drain(); len(heard) != 0 {
			t.Errorf("a node that stays full was announced: %+v", heard)
		}
		r.sound()
	})
}

// TestHandOver: a completion gives its slot to the next that the node is known to serve,
// under the configuration that holds.
func TestHandOver(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		node := testNode("n1", 1)
		epoch := r.register(node)
		for name, c := range map[string]struct {
			change func()
			want   bool
		}{
			"":                       {func() {}, true},
			"the same configuration": {func() { must(t, r.ConfigSeen(r.ctx(), 1)) }, true},
			"another configuration":  {func() { must(t, r.ConfigSeen(r.ctx(), 2)) }, false},
			"draining": {func() {
				_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Status: freeslot.StatusDraining})
				must(t, err)
			}, false},
			"another profile": {func() {
				node.Labels = map[string]string{"was": fmt.Sprint(len(node.Labels))}
				_, err := r.Register(r.ctx(), node, epoch)
				must(t, err)
			}, false},
			"smaller":    {func() { r.do("HSET", r.l.Node("n1"), "max_concurrency", "0") }, false},
			"no maximum": {func() { r.do("HSET", r.l.Node("n1"), "max_concurrency", "nan") }, false},
		} {
			must(t, r.ConfigSeen(r.ctx(), 1))
			first, second := r.waits("r1"), r.waits("r1")
			if n := r.take("n1"); n != 1 {
				t.Fatalf("%s: %d began", name, n)
			}
			c.change()
			before := len(r.told("r1"))
			r.end("n1", epoch, first)
			told := r.told("r1")[before:]
			if s := r.status(second); (s.State == freeslot.StateRunning) != c.want {
				t.Errorf("%s: %+v; want (s.State == freeslot.StateRunning) == %v", name, s, c.want)
			}
			if _, sum := r.slots("n1"); c.want != (sum == 1) {
				t.Errorf("%s: %d slots in use", name, sum)
			}
			for _, reply := range told {
				// The result comes behind the assignment, and with the figures that hold after both.
				if c.want != (reply.Used == 1) {
					t.Errorf("%s: reply %+v", name, reply)
				}
			}
			r.do("HSET", r.l.Node("n1"), "max_concurrency", "1")
			if c.want {
				r.end("n1", epoch, second)
			}
			r.cancelWaiting()
			_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch})
			must(t, err)
			r.do("DEL", r.l.Serves("n1")) // a mark of the profile's change would outlast its case
			r.sound()
		}
		// Nobody told of a configuration: the first node that takes does.
		r.do("DEL", r.l.ServesVersion(), r.l.Serves("n1"))
		first, second := r.waits(""), r.waits("")
		r.take("n1")
		if m := r.do("GET", r.l.ServesVersion()); m.String() == "" {
			t.Error("no version")
		}
		r.end("n1", epoch, first)
		r.end("n1", epoch, second)
		// One that is not the newest gives slots and is not remembered.
		must(t, r.ConfigSeen(r.ctx(), 2))
		r.do("DEL", r.l.Serves("n1"))
		third := r.waits("")
		if n := r.take("n1"); n != 1 || r.exists(r.l.Serves("n1")) {
			t.Errorf("%d began, is remembered: %v", n, r.exists(r.l.Serves("n1")))
		}
		r.end("n1", epoch, third)
		r.sound()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestHandOverFills: where the end of a job lets a larger one begin the node can become full.
func TestHandOverFills(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		one, rest := r.place("", 1, "n1"), r.place("", 2, "n1")
		r.waits("", slots(2))
		r.take("n1")
		hear := r.listen()
		r.end("n1", epoch, one)
		if heard := hear.drain(); len(heard) != 1 || heard[0].Kind != events.SlotFull || heard[0].Used != 4 {
			t.Errorf("events %+v", heard)
		}
		r.end("n1", epoch, rest)
		if heard := hear.drain(); len(heard) != 1 || heard[0].Kind != events.SlotFree || heard[0].Used != 2 {
			t.Errorf("events %+v", heard)
		}
		r.sound()
	})
}

// TestTakePassesOddRecords: what an operator deleted or edited leaves the queue.
func TestTakePassesOddRecords(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		deleted, edited := r.waits(""), r.waits("")
		whole := r.waits("")
		r.do("DEL", r.l.Job(deleted))
		r.do("HSET", r.l.Job(edited), "job", "x")
		if n := r.take("n1"); n != 1 || r.status(whole).State != freeslot.StateRunning {
			t.Errorf("%d began", n)
		}
		r.end("n1", epoch, whole)
		r.do("DEL", r.l.Job(edited))
		r.sound()
		last := r.waits("")
		r.do("DEL", r.l.Job(last))
		r.take("n1")
		r.sound() // the class is forgotten with its last job
	})
}
