package cell

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// BenchmarkEndCost reports what the plain end of one job costs Redis: the time of the scripts by its own
// accounts (us), and all its processor time, which has the reading of the calls too (cpu-us). A call of
// complete.lua is of one node, one of complete_nodes.lua of several, in turns. The nodes have room, or
// they are full, so that each end is published.
func BenchmarkEndCost(b *testing.B) {
	server := redistest.New(b)
	for _, full := range []bool{false, true} {
		b.Run(fmt.Sprintf("full=%t", full), func(b *testing.B) { endCost(newMeter(b, server), full) })
	}
}

func endCost(m *meter, full bool) {
	const nodes = 256
	slots := 100
	if full {
		slots = 1
	}
	for i := range nodes {
		_, err := m.c.Register(m.ctx, testNode("node-"+strconv.Itoa(i), slots), "e1")
		m.must(err)
	}
	kinds := []struct {
		name         string
		nodes, items int
	}{{"one-node", 1, 1}, {"one-node-x8", 1, 8}, {"nodes-1", 1, 1}, {"nodes-2", 2, 1}, {"nodes-8", 8, 1}, {"nodes-32", 32, 1}, {"nodes-32-x2", 32, 2}}
	us, cpu := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	m.b.StopTimer()
	m.b.ResetTimer()
	for range m.b.N {
		for k, kind := range kinds {
			if kind.items > slots {
				continue
			}
			var calls [][]Completion
			for order := rand.Perm(nodes); len(order) > 0; order = order[kind.nodes:] { //nolint:gosec // a load
				calls = append(calls, m.running(order[:kind.nodes], kind.items))
			}
			end := func(ctx context.Context, comps []Completion) error { return m.c.CompleteNode(ctx, comps)[0].Err }
			if strings.HasPrefix(kind.name, "nodes") {
				end = func(ctx context.Context, comps []Completion) error {
					_, err := m.c.CompleteNodes(ctx, comps)
					return err
				}
			}
			m.us = 0
			before := m.cpu()
			m.measured(func() {
				for _, comps := range calls {
					m.must(end(m.ctx, comps))
				}
			})
			us[k], cpu[k] = append(us[k], m.us/float64(nodes*kind.items)), append(cpu[k], (m.cpu()-before)/float64(nodes*kind.items))
		}
		m.must(m.c.KeepReplies(m.ctx, "r1", fmt.Sprintf("%d-0", uint64(1)<<62)))
	}
	for k, kind := range kinds {
		if len(us[k]) > 0 {
			m.b.ReportMetric(median(us[k]), kind.name+"-us")
			m.b.ReportMetric(median(cpu[k]), kind.name+"-cpu-us")
		}
	}
}

// running starts jobs on each of the nodes, and returns their ends.
func (m *meter) running(nodes []int, items int) (ends []Completion) {
	for _, n := range nodes {
		node := "node-" + strconv.Itoa(n)
		for range items {
			s := submission("r1", node)
			e, err := encodeSubmission(s, 1)
			m.must(err)
			p, err := m.c.submit(m.ctx, []encodedSubmission{e})
			m.must(err)
			if !p[0].Assigned {
				m.b.Fatal("not assigned")
			}
			ends = append(ends, succeed(node, "e1", s.JobID))
		}
	}
	return ends
}

var cpuLine = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([0-9.]+)`)

// cpu is the processor time that the server has taken, in microseconds.
func (m *meter) cpu() (us float64) {
	text, err := m.raw.Do(m.ctx, m.raw.B().Info().Section("cpu").Build()).ToString()
	m.must(err)
	for _, line := range cpuLine.FindAllStringSubmatch(text, -1) {
		seconds, _ := strconv.ParseFloat(line[1], 64)
		us += seconds * 1e6
	}
	return us
}
