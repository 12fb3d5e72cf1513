package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/process/config/reference"
	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/redis/redistest/golden"
)

// scrape returns the number of series.
func (s *system) scrape(t *testing.T) (series int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			series++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return series
}

// TestMetricsReference: dashboards rely on the metrics' names, types and labels.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	s := startSystem(t, func(cfg *config.Replica) { cfg.Locked = config.Locked{Mirror: true, Verify: true} })
	// Labelled metrics appear with their first value.
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"echo"}`)
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"nobody-has-it"}`)
	golden.Metrics(t, "metrics.txt", s.metrics)
	reference.Check(t, "metrics.md", "scheduler", reference.Metrics(t, s.metrics))
}

// TestScrapeDoesNotGrow: the number of series, and so a scrape's work, is the same
// with one node and with two hundred.
func TestScrapeDoesNotGrow(t *testing.T) {
	t.Parallel()
	var redis config.Redis
	s := startSystem(t, func(cfg *config.Replica) { redis = cfg.Redis })
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.KeyPrefix}}, redistest.Shared(t).Client(t), zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	register := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			node := freeslot.Node{ID: fmt.Sprintf("extra-%d", i), MaxConcurrency: 1}
			if _, err := c.Register(t.Context(), node, cell.NewEpoch()); err != nil {
				t.Fatal(err)
			}
		}
		s.await(t, fmt.Sprintf("extra-%d", to-1))
	}
	register(0, 1)
	job := func() { call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"echo"}`) }
	job()
	settle := func() int {
		// Go's own collectors and the first use of a label add series once; wait
		// until two scrapes agree.
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		last := s.scrape(t)
		for range 500 {
			<-tick.C
			now := s.scrape(t)
			if now == last {
				return now
			}
			last = now
		}
		t.Fatal("the number of series does not settle")
		return 0
	}
	before := settle()
	register(1, 200)
	job()
	// An operation that is first needed meanwhile, such as the load after a lost event, adds its
	// series. Series that grow with the nodes would add at least one for each node.
	if after := settle(); after >= before+199 {
		t.Errorf("%d series with 2 nodes, %d with 201", before, after)
	}
}
