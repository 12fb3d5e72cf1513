package cell

import (
	"strconv"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkHandOverCost reports the time that Redis itself takes, by its own accounts, for what a job that waits
// costs: to be enqueued, and to take the place of one that ends. Beside them the yardstick of
// BenchmarkScriptCost, in turns.
func BenchmarkHandOverCost(b *testing.B) {
	const nodes, backlog = 100, 200
	m := newMeter(b, redistest.New(b))
	epoch := NewEpoch()
	for i := range nodes {
		_, err := m.c.Register(m.ctx, testNode("node-"+strconv.Itoa(i), 1), epoch)
		m.must(err)
	}
	enqueue := func() {
		e, err := encodeSubmission(submission("r1"), 0)
		m.must(err)
		_, err = m.c.enqueue(m.ctx, []encodedSubmission{e})
		m.must(err)
	}
	for range nodes + backlog {
		enqueue()
	}
	running := make([][]string, nodes) // jobs of each node, the oldest first
	node := 0
	begun := func(ds []Dispatch) {
		for i := range ds {
			running[node] = append(running[node], ds[i].Attempt.Job)
		}
	}
	for node = range nodes {
		id := "node-" + strconv.Itoa(node)
		_, err := m.c.Take(m.ctx, id, []string{echo}, 1)
		m.must(err)
		ds, err := m.c.Dispatches(m.ctx, id, "", 0, 10)
		m.must(err)
		begun(ds)
	}
	complete := func(i int) {
		node = i
		c := succeed("node-"+strconv.Itoa(node), epoch, running[node][0])
		running[node] = running[node][1:]
		c.Begun = begun
		_, err := m.c.complete(m.ctx, []Completion{c})
		m.must(err)
		if len(running[node]) == 0 {
			b.Fatal("nothing was handed over")
		}
	}
	m.inTurns(nodes, []cost{
		m.reserved(),
		{"enqueue", func(int) { enqueue() }},
		{"hand-over", complete},
	})
}
