package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/procgroup"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// told holds what a replica's metrics say in TestPrometheus: counters by their growth per second,
// gauges by their value. The metrics of a cell are the same of all replicas.
var told = map[string]float64{
	`freeslot_assign_seconds_bucket{le="0.001"}`: 1, `freeslot_assign_seconds_bucket{le="0.002"}`: 2,
	`freeslot_assign_seconds_bucket{le="+Inf"}`: 2, `freeslot_assign_seconds_count{}`: 2, `freeslot_assign_seconds_sum{}`: 1,
	`freeslot_jobs_enqueued_total{cell="0"}`: 0.5, `freeslot_submits_total{outcome="accepted"}`: 2.5,
	`freeslot_submits_total{outcome="overloaded"}`: 0.25, `freeslot_jobs_ended_total{cell="0",state="succeeded"}`: 3,
	`freeslot_jobs_ended_total{cell="1",state="succeeded"}`: 1, `freeslot_jobs_ended_total{cell="1",state="dead"}`: 0.5,
	`freeslot_jobs_retried_total{cell="1"}`: 0.75, `process_cpu_seconds_total{}`: 0.1,

	`freeslot_waiting_jobs{cell="0"}`: -7, `freeslot_waiting_jobs{cell="1"}`: -2, `freeslot_slots{state="all"}`: -12,
	`freeslot_outstanding_jobs{}`: -1, `process_resident_memory_bytes{}`: -1000,
}

// samples writes what two replicas and another system's said at each five minutes.
func samples(from, to time.Time) []byte {
	var text bytes.Buffer
	families := map[string][]string{}
	for series := range told {
		name, _, _ := strings.Cut(series, "{")
		families[name] = append(families[name], series)
	}
	for name, all := range families {
		fmt.Fprintf(&text, "# TYPE %s unknown\n", name)
		for _, series := range all {
			for _, labels := range []string{`instance="a",job="freeslot"`, `instance="b",job="freeslot"`, `instance="c",job="other"`} {
				name, rest, _ := strings.Cut(series, "{")
				rest = strings.TrimPrefix(strings.TrimSuffix(rest, "}")+","+labels, ",")
				for at := from; !at.After(to); at = at.Add(5 * time.Minute) {
					value := -told[series]
					if value < 0 {
						value *= -at.Sub(from).Seconds()
					}
					fmt.Fprintf(&text, "%s{%s} %g %d\n", name, rest, value, at.Unix())
				}
			}
		}
	}
	text.WriteString("# EOF\n")
	return text.Bytes()
}

// realPrometheus starts a Prometheus with these samples, and returns its address.
func realPrometheus(t *testing.T, text []byte) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("this test needs Prometheus; make deps installs it: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	input, data, settings := filepath.Join(dir, "samples"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	for file, content := range map[string][]byte{input: text, settings: []byte("scrape_configs: []\n")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", input, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+settings, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=200d", "--web.listen-address="+addr)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = procgroup.Attr(), &out, &out
	ended, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread must stay: see procgroup.Attr
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("prometheus said\n%s", &out)
		}
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "Prometheus to be ready", func() bool {
		resp, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + addr
}

// TestPrometheus: long ranges are what a real Prometheus knows of this system, all replicas
// together, and a time without samples is a gap.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	now := time.Now()
	from := now.Add(-26 * time.Hour).Truncate(time.Hour)
	p := NewPrometheus(PrometheusConfig{
		URL: realPrometheus(t, samples(from, now)) + "/", Labels: map[string]string{"job": "freeslot"},
	})
	want := map[string]float64{
		"arrivals_placed": 4, "arrivals_queued": 1, "arrivals_refused": 0.5, "ends": 4.5, "ends_succeeded": 4, "ends_dead": 0.5,
		"retries": 0.75, "assign_p50_ms": 1, "assign_p99_ms": 1.98, "waiting": 9, "slots_total": 12, "replicas": 2,
		"replicas_cpu": 0.2, "replicas_memory_bytes": 2000,
	}
	for _, ask := range []struct {
		since string
		step  time.Duration
		rows  int
	}{{"30h", 10 * time.Minute, 181}, {"168h", 10 * time.Minute, 1008}, {"720h", time.Hour, 720}, {"2160h", 3 * time.Hour, 720}} {
		h := New()
		h.UsePrometheus(p)
		table, err := h.read(t.Context(), &historyInput{Since: ask.since})
		if err != nil {
			t.Fatalf("since %s: %v; want no error", ask.since, err)
		}
		if table.StepMS != ask.step.Milliseconds() || len(table.Rows) > ask.rows || len(table.Rows) < ask.rows-1 {
			t.Errorf("since %s: %d rows of %d ms; want about %d of %s", ask.since, len(table.Rows), table.StepMS, ask.rows, ask.step)
		}
		if at := int64(*table.Rows[0][0]); at > from.UnixMilli() || table.Rows[0][1] != nil {
			t.Errorf("since %s: the first step is at %d, known: %v; want one before the first sample, unknown", ask.since, at, table.Rows[0][1] != nil)
		}
		row := table.Rows[len(table.Rows)-2]
		for i, name := range table.Columns[1:] {
			value, known := want[name]
			if got := row[i+1]; (got != nil) != known || known && math.Abs(*got-value) > 0.01*value {
				t.Errorf("since %s: %s is %v; want %v", ask.since, name, text(got), value)
			}
		}
	}
}

// TestPrometheusFails: whatever is wrong with a Prometheus is an error with a code that has neither
// its address nor the token, and no redirect is followed with it.
func TestPrometheusFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	for name, answer := range map[string]http.HandlerFunc{
		"it answers 302":          func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"it answers 503":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"its answer is no matrix": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":[]}`)) },
		"its answer has more than": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte(" "), queryBytes+1))
		},
		"EOF": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1); r.Header.Get("Authorization") != "Bearer s3cret" || r.URL.Path != "/prometheus/api/v1/query_range" {
				t.Errorf("asked %s with %q; want the token, below the path", r.URL, r.Header.Get("Authorization"))
			}
			answer(w, r)
		}))
		t.Cleanup(s.Close)
		p := NewPrometheus(PrometheusConfig{URL: s.URL + "/prometheus", TokenFile: file})
		_, err := p.Range(t.Context(), time.Now(), 48*time.Hour)
		e := (*freeslot.Error)(nil)
		if !errors.As(err, &e) || e.Code != freeslot.CodeUnavailable || !strings.Contains(e.Message, name) ||
			strings.Contains(e.Message, "127.0.0.1") || strings.Contains(e.Message, "s3cret") {
			t.Errorf("%v; want unavailable because %s, without an address or the token", err, name)
		}
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	for address, why := range map[string]string{
		"http://127.0.0.1:1": "refused", s.URL + "/": "certificate",
	} {
		_, err := NewPrometheus(PrometheusConfig{URL: address}).Range(t.Context(), time.Now(), 48*time.Hour)
		if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v; want why (%s) without an address", address, err, why)
		}
	}
	lookup := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "prometheus", Server: "10.0.0.1:53"}}
	if err := unreached(lookup); err.Error() != "its host has no address" {
		t.Errorf("%v; want why without a name", err)
	}
	for since, field := range map[string]string{"2161h": "since", "25h": "step"} {
		h := New()
		h.UsePrometheus(NewPrometheus(PrometheusConfig{URL: "http://127.0.0.1:1"}))
		_, err := h.read(t.Context(), &historyInput{Since: since, Step: "1m"})
		if e := (*freeslot.Error)(nil); !errors.As(err, &e) || e.Field != field {
			t.Errorf("since %s with a step: %v; want an error of %s", since, err, field)
		}
	}
	if _, err := New().read(t.Context(), &historyInput{Since: "25h"}); err == nil || !strings.Contains(err.Error(), "console.prometheus_url") {
		t.Errorf("without a Prometheus: %v; want the key that configures one", err)
	}
}

// TestPrometheusIsAskedOnce: callers share an answer, and one query runs at a time.
func TestPrometheusIsAskedOnce(t *testing.T) {
	t.Parallel()
	var calls, running atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1); running.Add(1) > 1 {
			t.Error("two queries at a time; want one")
		}
		defer running.Add(-1)
		_, _ = w.Write([]byte(`{"data":{"resultType":"matrix","result":[]}}`))
	}))
	t.Cleanup(s.Close)
	p := NewPrometheus(PrometheusConfig{URL: s.URL})
	done := make(chan error)
	for i := range 20 {
		go func() {
			_, err := p.Range(context.Background(), time.Now(), []time.Duration{25, 150, 800}[i%3]*time.Hour)
			done <- err
		}()
	}
	for range 20 {
		if err := waittest.Receive(t, "an answer", done); err != nil {
			t.Errorf("%v; want no error", err)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d queries for two ranges; want 2", n)
	}
}

// TestQueriesNameMetrics: each series has a query, and each metric in it is one that replicas have.
func TestQueriesNameMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		names := regexp.MustCompile(`freeslot_[a-z_]+`).FindAllString(queries[s.name], -1)
		if len(names) == 0 {
			t.Errorf("%s has no query; want one", s.name)
		}
		for _, name := range names {
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !strings.Contains(string(text), "`"+base+"`") {
				t.Errorf("the query of %s asks for %s; want a metric of docs/reference/metrics.md", s.name, name)
			}
		}
	}
	if len(queries) != len(all) {
		t.Errorf("%d queries; want one for each of %d series", len(queries), len(all))
	}
}

func FuzzDecodeMatrix(f *testing.F) {
	f.Add([]byte(`{"data":{"resultType":"matrix","result":[{"metric":{"freeslot_series":"ends"},"values":[[600,"1"],[1200,"NaN"]]}]}}`))
	f.Add([]byte(`{"data":{"resultType":"matrix","result":[{"metric":{"freeslot_series":"t_ms"},"values":[[1e300,"1e999"],["",null]]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := decodeMatrix(text, time.Unix(0, 0), tiers[0])
		if err != nil {
			return
		}
		for i, row := range table.Rows {
			if len(row) != len(table.Columns) || *row[0] != float64(int64(i)*table.StepMS) {
				t.Fatalf("row %d of %q has %d values; want one for each column, and its time", i, text, len(row))
			}
		}
	})
}
