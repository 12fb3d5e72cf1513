package cell

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkScripts reports what one call costs Redis itself (redis-us/op) and how
// many commands it runs there (calls/op), besides the time that the caller sees.
// Jobs are of about 300 bytes and have a replica that waits for them.
func BenchmarkScripts(b *testing.B) {
	server := redistest.New(b)
	for _, jobs := range []int{1, 64} {
		b.Run(fmt.Sprintf("submit/jobs=%d", jobs), func(b *testing.B) {
			m := newMeter(b, server)
			m.chunks(func(n int) func() {
				batches := m.batches(n, jobs)
				m.measured(func() { m.submit(batches) })
				return func() { m.complete(batches) }
			})
		})
		b.Run(fmt.Sprintf("complete/jobs=%d", jobs), func(b *testing.B) {
			m := newMeter(b, server)
			m.chunks(func(n int) func() {
				batches := m.batches(n, jobs)
				m.submit(batches)
				m.measured(func() { m.complete(batches) })
				return nil
			})
		})
	}
	b.Run("cancel", func(b *testing.B) {
		m := newMeter(b, server)
		m.chunks(func(n int) func() {
			batches := m.batches(n, 1)
			m.submit(batches)
			m.measured(func() {
				for _, subs := range batches {
					_, err := m.c.Cancel(m.ctx, "", subs[0].JobID)
					m.must(err)
				}
			})
			return func() { m.complete(batches) }
		})
	})
	b.Run("submit/refused", func(b *testing.B) {
		m := newMeter(b, server)
		s := m.batches(1, 1)[0]
		s[0].Candidates = []string{"gone", "gone-too"}
		m.each(func(int) error { _, err := m.c.submit(m.ctx, s); return err })
	})
	b.Run("register/new", func(b *testing.B) {
		m := newMeter(b, server)
		m.each(func(int) error { _, err := m.c.Register(m.ctx, richNode("n2"), NewEpoch()); return err })
	})
	b.Run("register/same", func(b *testing.B) {
		m := newMeter(b, server)
		m.each(func(int) error { _, err := m.c.Register(m.ctx, m.node, m.epoch); return err })
	})
	for _, owned := range []int{0, 16, 1024} {
		b.Run(fmt.Sprintf("heartbeat/jobs=%d", owned), func(b *testing.B) {
			m := newMeter(b, server)
			hb := Heartbeat{Node: "n1", Epoch: m.epoch, Read: "0-1", Resources: []byte(`{"cpu":0.5,"memory":0.25,"load1":0.1}`)}
			batches := m.batches(owned, 1)
			m.submit(batches)
			for _, subs := range batches {
				hb.Running = append(hb.Running, Attempt{subs[0].JobID, 1})
			}
			m.each(func(int) error { _, err := m.c.Heartbeat(m.ctx, hb); return err })
		})
	}
	b.Run("attach", func(b *testing.B) {
		m := newMeter(b, server)
		batches := m.batches(1, 1)
		m.submit(batches)
		m.each(func(i int) error {
			_, err := m.c.Attach(m.ctx, "", batches[0][0].JobID, "r"+strconv.Itoa(i%2))
			return err
		})
	})
	b.Run("changes/nodes=100", func(b *testing.B) {
		m := newMeter(b, server)
		for i := range 99 {
			_, err := m.c.Register(m.ctx, richNode("other-"+strconv.Itoa(i)), "e1")
			m.must(err)
		}
		m.each(func(int) error { _, err := m.c.Changes(m.ctx, 0, 100); return err })
	})
}

// meter is a cell with one node of many slots, and the server's own accounts.
type meter struct {
	b     *testing.B
	ctx   context.Context
	c     *Cell
	raw   rueidis.Client
	node  freeslot.Node
	epoch Epoch

	calls, us float64
}

func newMeter(b *testing.B, server *redistest.Server) *meter {
	b.Helper()
	cfg := Config{Layout: Layout{Prefix: server.Prefix(b)}, CallTimeout: patience, HeartbeatLimit: time.Hour}
	c, err := New(cfg, server.Client(b), zap.NewNop(), nil)
	if err != nil {
		b.Fatal(err)
	}
	m := &meter{
		b: b, ctx: b.Context(), c: c, raw: server.Client(b),
		node: testNode("n1", freeslot.MaxConcurrencyLimit), epoch: NewEpoch(),
	}
	_, err = c.Register(m.ctx, m.node, m.epoch)
	m.must(err)
	m.must(c.OpenReplies(m.ctx, "r1"))
	return m
}

func (m *meter) must(err error) {
	if err != nil {
		m.b.Helper()
		m.b.Fatal(err)
	}
}

// batches makes n calls' worth of jobs.
func (m *meter) batches(n, jobs int) [][]encodedSubmission {
	batches := make([][]encodedSubmission, n)
	for i := range batches {
		for range jobs {
			s := submission("r1", "n1")
			s.Job.Payload = []byte(`"` + strings.Repeat("x", 256) + `"`)
			e, err := encodeSubmission(s, 1)
			m.must(err)
			batches[i] = append(batches[i], e)
		}
	}
	return batches
}

func (m *meter) submit(batches [][]encodedSubmission) {
	for _, subs := range batches {
		placements, err := m.c.submit(m.ctx, subs)
		m.must(err)
		if !placements[len(subs)-1].Assigned {
			m.b.Fatal("not assigned")
		}
	}
}

func (m *meter) complete(batches [][]encodedSubmission) {
	for _, subs := range batches {
		comps := make([]Completion, len(subs))
		for i, s := range subs {
			comps[i] = succeed("n1", m.epoch, s.JobID)
		}
		_, err := m.c.complete(m.ctx, comps)
		m.must(err)
	}
	m.must(m.c.KeepReplies(m.ctx, "r1", fmt.Sprintf("%d-0", uint64(1)<<62)))
}

// chunks runs part for b.N calls in parts of at most 100, so that what a part leaves
// behind stays small; what part returns cleans up.
func (m *meter) chunks(part func(n int) func()) {
	m.b.StopTimer()
	m.b.ResetTimer()
	for left := m.b.N; left > 0; left -= 100 {
		if clean := part(min(left, 100)); clean != nil {
			clean()
		}
	}
	m.b.ReportMetric(m.us/float64(m.b.N), "redis-us/op")
	m.b.ReportMetric(m.calls/float64(m.b.N), "calls/op")
}

func (m *meter) each(f func(i int) error) {
	m.chunks(func(n int) func() {
		m.measured(func() {
			for i := range n {
				m.must(f(i))
			}
		})
		return nil
	})
}

// measured runs f between two looks at the server's accounts.
func (m *meter) measured(f func()) {
	before, beforeUS := m.accounts()
	m.b.StartTimer()
	f()
	m.b.StopTimer()
	after, afterUS := m.accounts()
	m.calls += after - before
	m.us += afterUS - beforeUS
}

var statLine = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

// accounts are the commands that scripts and clients have run so far, and the time
// of the scripts.
func (m *meter) accounts() (calls, us float64) {
	text, err := m.raw.Do(m.ctx, m.raw.B().Info().Section("commandstats").Build()).ToString()
	m.must(err)
	for _, line := range statLine.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(line[2], 64)
		t, _ := strconv.ParseFloat(line[3], 64)
		switch {
		case strings.HasPrefix(line[1], "eval"):
			us += t
		case line[1] != "info":
			calls += n
		}
	}
	return calls, us
}
