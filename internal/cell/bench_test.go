package cell

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redistest"
)

// BenchmarkScripts reports what one call costs Redis itself (redis-us/op) and how
// many commands it runs there (calls/op), besides the time that the caller sees.
func BenchmarkScripts(b *testing.B) {
	server := redistest.New(b)
	for _, jobs := range []int{1, 64} {
		b.Run(fmt.Sprintf("submit/jobs=%d", jobs), func(b *testing.B) {
			m := newMeter(b, server, jobs)
			for b.Loop() {
				subs := m.submissions()
				m.measured(func() error { _, err := m.c.submit(m.ctx, subs); return err })
				m.must(m.complete(subs))
			}
			m.report()
		})
		b.Run(fmt.Sprintf("complete/jobs=%d", jobs), func(b *testing.B) {
			m := newMeter(b, server, jobs)
			for b.Loop() {
				subs := m.submissions()
				_, err := m.c.submit(m.ctx, subs)
				m.must(err)
				m.measured(func() error { return m.complete(subs) })
			}
			m.report()
		})
	}
	b.Run("submit/refused", func(b *testing.B) {
		m := newMeter(b, server, 1)
		for b.Loop() {
			s := m.submissions()
			s[0].Candidates = []string{"gone", "gone-too"}
			m.measured(func() error { _, err := m.c.submit(m.ctx, s); return err })
		}
		m.report()
	})
	b.Run("register/new", func(b *testing.B) {
		m := newMeter(b, server, 1)
		for b.Loop() {
			m.measured(func() error { _, err := m.c.Register(m.ctx, richNode("n2"), NewEpoch()); return err })
		}
		m.report()
	})
	b.Run("register/same", func(b *testing.B) {
		m := newMeter(b, server, 1)
		for b.Loop() {
			m.measured(func() error { _, err := m.c.Register(m.ctx, m.node, m.epoch); return err })
		}
		m.report()
	})
	for _, owned := range []int{0, 16, 1024} {
		b.Run(fmt.Sprintf("heartbeat/jobs=%d", owned), func(b *testing.B) {
			m := newMeter(b, server, owned)
			hb := Heartbeat{Node: "n1", Epoch: m.epoch, Read: "0-1", Resources: []byte(`{"cpu":0.5,"memory":0.25,"load1":0.1}`)}
			if owned > 0 {
				subs := m.submissions()
				_, err := m.c.submit(m.ctx, subs)
				m.must(err)
				for _, s := range subs {
					hb.Running = append(hb.Running, Attempt{s.JobID, 1})
				}
			}
			for b.Loop() {
				m.measured(func() error { _, err := m.c.Heartbeat(m.ctx, hb); return err })
			}
			m.report()
		})
	}
	b.Run("cancel", func(b *testing.B) {
		m := newMeter(b, server, 1)
		for b.Loop() {
			subs := m.submissions()
			_, err := m.c.submit(m.ctx, subs)
			m.must(err)
			m.measured(func() error { _, err := m.c.Cancel(m.ctx, "", subs[0].JobID); return err })
			m.must(m.complete(subs))
		}
		m.report()
	})
	b.Run("attach", func(b *testing.B) {
		m := newMeter(b, server, 1)
		subs := m.submissions()
		_, err := m.c.submit(m.ctx, subs)
		m.must(err)
		for i := 0; b.Loop(); i++ {
			m.measured(func() error { _, err := m.c.Attach(m.ctx, "", subs[0].JobID, fmt.Sprintf("r%d", i%2)); return err })
		}
		m.report()
	})
	b.Run("changes/nodes=100", func(b *testing.B) {
		m := newMeter(b, server, 1)
		for i := range 99 {
			_, err := m.c.Register(m.ctx, richNode(fmt.Sprintf("other-%d", i)), "e1")
			m.must(err)
		}
		for b.Loop() {
			m.measured(func() error { _, err := m.c.Changes(m.ctx, 0, 100); return err })
		}
		m.report()
	})
}

// meter is a cell with one node of many slots, and the server's own accounts.
type meter struct {
	b     *testing.B
	ctx   context.Context
	c     *Cell
	raw   rueidis.Client
	jobs  int
	node  freeslot.Node
	epoch Epoch

	calls, us float64
}

func newMeter(b *testing.B, server *redistest.Server, jobs int) *meter {
	b.Helper()
	c, err := New(Config{Layout: Layout{Prefix: server.Prefix(b)}, CallTimeout: patience}, server.Client(b), zap.NewNop(), nil)
	if err != nil {
		b.Fatal(err)
	}
	m := &meter{b: b, ctx: b.Context(), c: c, raw: server.Client(b), jobs: jobs, node: testNode("n1", 1<<12), epoch: NewEpoch()}
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

// submissions are jobs of about 300 bytes.
func (m *meter) submissions() []encodedSubmission {
	subs := make([]encodedSubmission, m.jobs)
	for i := range subs {
		s := submission("r1", "n1")
		s.Job.Payload = []byte(`"` + strings.Repeat("x", 256) + `"`)
		var err error
		subs[i], err = encodeSubmission(s)
		m.must(err)
	}
	return subs
}

func (m *meter) complete(subs []encodedSubmission) error {
	comps := make([]Completion, len(subs))
	for i, s := range subs {
		comps[i] = succeed("n1", m.epoch, s.JobID)
	}
	_, err := m.c.complete(m.ctx, comps)
	return err
}

// measured runs f between two looks at the server's accounts. Their own cost is not
// in the benchmark's time.
func (m *meter) measured(f func() error) {
	m.b.StopTimer()
	before, beforeUS := m.accounts()
	m.b.StartTimer()
	err := f()
	m.b.StopTimer()
	m.must(err)
	after, afterUS := m.accounts()
	m.calls += after - before - 1 // the look itself
	m.us += afterUS - beforeUS
	m.b.StartTimer()
}

var statLine = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

// accounts are the commands run so far besides scripts, and the time of scripts.
func (m *meter) accounts() (calls, us float64) {
	text, err := m.raw.Do(m.ctx, m.raw.B().Info().Section("commandstats").Build()).ToString()
	m.must(err)
	for _, line := range statLine.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(line[2], 64)
		t, _ := strconv.ParseFloat(line[3], 64)
		if strings.HasPrefix(line[1], "eval") {
			us += t
		} else if line[1] != "script|load" {
			calls += n
		}
	}
	return calls, us
}

func (m *meter) report() {
	m.b.ReportMetric(m.us/float64(m.b.N), "redis-us/op")
	m.b.ReportMetric(m.calls/float64(m.b.N), "calls/op")
}
