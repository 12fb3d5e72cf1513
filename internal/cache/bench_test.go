package cache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// noSource is a Redis without nodes: benchmarks read nothing.
type noSource struct{}

func (noSource) Changes(context.Context, cell.Revision, int) (cell.Changes, error) {
	return cell.Changes{}, nil
}

func (noSource) Nodes(context.Context, []string) (cell.Changes, error) { return cell.Changes{}, nil }

func (noSource) Heard(context.Context, int64, int, cell.Quiet) (cell.Heard, error) {
	return cell.Heard{}, nil
}

func (noSource) History(context.Context) (string, error)                     { return "", nil }
func (noSource) NodeRevision(context.Context, string) (cell.Revision, error) { return 0, nil }
func (noSource) HeartbeatLimit() time.Duration                               { return time.Hour }

// benchCache is a fleet as a load brings it: pool i%pools, every second node with
// German, every fourth in the zone.
func benchCache(nodes, pools int) *Cache {
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), prometheus.NewRegistry())
	for i := range nodes {
		n := freeslot.Node{
			ID: fmt.Sprintf("node-%d", i), MaxConcurrency: 4,
			Services:  []freeslot.Service{{Name: "asr"}, {Name: "tts"}},
			Languages: freeslot.Languages{ASR: []string{"en", "fr"}, TTS: []string{"en", "zh-Hant"}},
			Pools:     []string{fmt.Sprintf("pool-%d", i%pools)},
		}
		if i%2 == 0 {
			n.Languages.ASR = append(n.Languages.ASR, "de")
		}
		if i%4 == 0 {
			n.Labels = map[string]string{"zone": "eu-1"}
		}
		c.followers[0].put(&cell.NodeState{Node: n, Epoch: "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Status: freeslot.StatusOnline, Used: 1})
		node, _ := c.Node(n.ID)
		node.Seen(c.Now())
	}
	return c
}

// BenchmarkEvent is one event from the wire into the cache: decoded, compared with
// the revision, counted and applied.
func BenchmarkEvent(b *testing.B) {
	const nodes = 10_000
	body := `{"cpu":{"percent":12.5},"memory":{"used_bytes":123456789,"total_bytes":987654321},"load":[0.5,0.4,0.3]}`
	for _, kind := range []events.Kind{events.Heartbeat, events.SlotFull} {
		b.Run(fmt.Sprintf("kind=%s/nodes=%d", kind, nodes), func(b *testing.B) {
			c := benchCache(nodes, 100)
			messages := make([]string, nodes)
			for i := range messages {
				e := events.Event{
					Kind: kind, Revision: uint64(i + 1), AtMS: 1700000000123, Node: fmt.Sprintf("node-%d", i*7919%nodes),
					Epoch: "01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Status: freeslot.StatusOnline, MaxConcurrency: 4, Used: 2,
				}
				if kind == events.Heartbeat {
					e.Body = body
				}
				messages[i] = string(e.Append(nil))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.followers[0].receive(messages[i])
				if i++; i == nodes {
					i = 0
					c.followers[0].revision.Store(0)
				}
			}
		})
	}
}

// BenchmarkClassChoose is what a submit asks of the cache: from the requirement as
// the client sent it to the candidates.
func BenchmarkClassChoose(b *testing.B) {
	const nodes, pools = 10_000, 100
	c := benchCache(nodes, pools)
	go c.clock.run(b.Context())
	for name, requirement := range map[string]freeslot.Requirement{
		"any":  {},
		"pool": {Pool: "pool-42"},
		"rich": {
			Pool: "pool-40", Services: []string{"asr"}, SourceLanguage: "de-AT", TargetLanguage: "zh-Hant-TW",
			Labels: map[string]string{"zone": "eu-1"},
		},
	} {
		b.Run(fmt.Sprintf("requirement=%s/nodes=%d/pools=%d", name, nodes, pools), func(b *testing.B) {
			b.ReportAllocs()
			random := selection.NewSource(1)
			var room [2]*selection.Node
			for b.Loop() {
				q := selection.Query{Want: 2, Now: c.Now(), SilenceLimit: c.SilenceLimit()}
				if got := c.Class("tts", &requirement).Choose(room[:0], &q, random); len(got) != 2 {
					b.Fatalf("%d candidates", len(got))
				}
			}
		})
	}
}

// BenchmarkClassBuild is what the first choice after a change of profile costs.
func BenchmarkClassBuild(b *testing.B) {
	for _, nodes := range []int{100, 10_000} {
		c := benchCache(nodes, 100)
		requirement := freeslot.Requirement{Pool: "pool-40", SourceLanguage: "de-AT"}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.profiles.Add(1)
				c.Settle("tts", &requirement)
			}
		})
	}
}
