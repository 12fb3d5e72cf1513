package cell

import (
	"strconv"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/redistest"
)

// BenchmarkHandOverCost reports the time that Redis itself takes, by its own accounts, for what a job that waits
// costs: to be enqueued, and to take the place of one that ends. Beside them the yardstick of
// BenchmarkScriptCost, in turns.
func BenchmarkHandOverCost(b *testing.B) {
	const nodes, backlog, turn = 100, 200, 100
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
	node, ahead := 0, 0
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
	complete := func() {
		node = (node + 1) % nodes
		c := succeed("node-"+strconv.Itoa(node), epoch, running[node][0])
		running[node] = running[node][1:]
		c.Ahead, c.Begun = ahead, begun
		_, err := m.c.complete(m.ctx, []Completion{c})
		m.must(err)
		if len(running[node]) == 0 {
			b.Fatal("nothing was handed over")
		}
	}
	reserve, serial := rueidis.NewLuaScript(reserveScript), 0
	prefix := m.c.Layout().Prefix
	kinds := []struct {
		name string
		call func()
	}{
		{name: "reserve", call: func() {
			serial++
			id := strconv.Itoa(serial % nodes)
			keys := []string{prefix + ":reserve:" + id, prefix + ":held:" + id, prefix + ":stream:" + id}
			m.must(reserve.Exec(m.ctx, m.raw, keys, []string{strconv.Itoa(serial), "job-" + strconv.Itoa(serial%16), "x"}).Error())
		}},
		{name: "enqueue", call: enqueue},
		{name: "hand-over", call: complete},
	}
	us, calls := make([][]float64, len(kinds)), make([]float64, len(kinds))
	b.StopTimer()
	b.ResetTimer()
	for range b.N {
		for k, kind := range kinds {
			m.us, m.calls = 0, 0
			m.measured(func() {
				for range turn {
					kind.call()
				}
			})
			us[k] = append(us[k], m.us/turn)
			calls[k] = m.calls / turn
		}
		m.must(m.c.KeepReplies(m.ctx, "r1", "9000000000000-0"))
	}
	yardstick := median(us[0])
	for k, kind := range kinds {
		b.ReportMetric(median(us[k]), kind.name+"-us")
		b.ReportMetric(calls[k], kind.name+"-calls")
		b.ReportMetric(median(us[k])/yardstick, kind.name+"-ratio")
	}
}
