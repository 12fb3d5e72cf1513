package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/redistest"
	"github.com/freeslot/freeslot/internal/redistest/golden"
)

// scrape returns the names of all metrics, and the number of series.
func (s *system) scrape(t *testing.T) (names map[string]bool, series int) {
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
	names = make(map[string]bool)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names[name] = true
		} else if !strings.HasPrefix(lines.Text(), "#") {
			series++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return names, series
}

var documented = regexp.MustCompile("`(freeslot_[a-z_]+)")

// TestMetricsPage: docs/metrics.md has every metric that a replica serves, and none
// besides but the agent's. Dashboards rely on their types and labels.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	s := startSystem(t)
	// Labelled metrics appear with their first value.
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"echo"}`)
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"nobody-has-it"}`)
	served, _ := s.scrape(t)
	golden.Metrics(t, "metrics.txt", s.metrics)
	told := make(map[string]bool)
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
	}
	for name := range served {
		if strings.HasPrefix(name, "freeslot_") && !told[name] {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	// These have no value until something goes wrong, or nobody has configured what they are about.
	rare := map[string]bool{
		"freeslot_reservation_refusals_total": true, "freeslot_redis_call_errors_total": true,
		"freeslot_session_closed_total": true, "freeslot_session_refused_total": true,
		"freeslot_replication_waits_total": true, "freeslot_rate_submits_total": true, "freeslot_retained_bytes": true,
	}
	for name := range told {
		if !served[name] && !rare[name] && !strings.HasPrefix(name, "freeslot_worker_") {
			t.Errorf("docs/metrics.md has %s, which is not served", name)
		}
	}
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
		_, last := s.scrape(t)
		for range 500 {
			<-tick.C
			_, now := s.scrape(t)
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
	// An operation that is first needed meanwhile, such as the load after a lost event,
	// adds its series, but what grows with the nodes adds one for each at least.
	if after := settle(); after >= before+199 {
		t.Errorf("%d series with 2 nodes, %d with 201", before, after)
	}
}
