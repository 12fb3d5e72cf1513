package console

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRoster is half a second of 10,000 nodes of which a tenth change each second, for a topic
// with one viewer: a look and a frame.
func BenchmarkRoster(b *testing.B) {
	nodes := make([]Node, 10_000)
	said := func(percent int) *string {
		text := fmt.Sprintf(`{"at_ms":1767225603000,"ages_ms":{"cpu":40,"memory":40,"process":12},"cpu_usage":0.%02d,`+
			`"memory_usage":0.5,"current_jobs":1,"run_ms":900,"max_concurrency":4,"metrics":{"cpu":{"cores":2,"load1":0.72,"usage":0.31},`+
			`"memory":{"total_bytes":8589934592,"usage":0.5,"used_bytes":4294967296},"process":{"cpu_usage":0.01,"goroutines":30,`+
			`"heap_bytes":4000000,"open_fds":20,"rss_bytes":30000000,"uptime_seconds":3600}}}`, percent)
		return &text
	}
	for i := range nodes {
		nodes[i] = Node{ID: fmt.Sprintf("node-%05d", i), Used: i % 5, Max: 4, Epoch: "a", Resources: said(i % 100)}
	}
	h := newHub(newMetrics(nil))
	h.sources = Sources{Now: time.Now, Nodes: func(see func(*Node)) {
		for i := range nodes {
			see(&nodes[i])
		}
	}}
	look := Look{SilenceLimit: 8 * time.Second}
	h.roster.look(look, h.sources.Nodes)
	_, through, _ := fleetFrame(h, frame{}, 0)
	b.ReportAllocs()
	bytes := 0
	for n := 0; b.Loop(); n++ {
		for i := range len(nodes) / 20 {
			w := &nodes[(n*len(nodes)/20+i)%len(nodes)]
			w.Used, w.Resources = w.Used^1, said(n%100)
		}
		h.roster.look(look, h.sources.Nodes)
		var text []byte
		text, through, _ = fleetFrame(h, frame{}, through)
		bytes += len(text)
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "bytes/frame")
}
