package history

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// LongReach is how far back the figures of a Prometheus go.
	LongReach = 90 * 24 * time.Hour
	// queryTimeout bounds a query, and the wait for the one before it.
	queryTimeout = 15 * time.Second
	// queryBytes bounds its answer. The largest has about 1 MiB.
	queryBytes = 8 << 20
	// queryFresh is how long an answer is given again.
	queryFresh = time.Minute
)

// tier is a range that a Prometheus is asked for.
type tier struct{ reach, step time.Duration }

// tiers have at most about a thousand points each, and begin with the finest.
var tiers = [...]tier{
	{7 * 24 * time.Hour, 10 * time.Minute}, {30 * 24 * time.Hour, time.Hour}, {LongReach, 3 * time.Hour},
}

// PrometheusConfig says where a Prometheus is that scrapes all replicas.
type PrometheusConfig struct {
	URL string
	// TokenFile holds a bearer token. It is read for each query. "" sends none.
	TokenFile string
	// Labels are those of the series of this system; none takes all series.
	Labels map[string]string
}

// Prometheus gets the figures of long ranges from a Prometheus, by fixed queries. One query runs at
// a time, and its answer is for all who ask within a minute. It is safe for concurrent use.
type Prometheus struct {
	cfg    PrometheusConfig
	client *http.Client
	query  [len(tiers)]string

	busy chan struct{} // holds a token during a query, which guards kept
	kept [len(tiers)]answered
}

// answered is an answer of a Prometheus.
type answered struct {
	table Table
	until time.Time
}

// NewPrometheus makes the way to a Prometheus. It does no I/O.
func NewPrometheus(cfg PrometheusConfig) *Prometheus {
	p := &Prometheus{cfg: cfg, busy: make(chan struct{}, 1), client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for i, t := range tiers {
		p.query[i] = queryOf(cfg.Labels, t.step)
	}
	return p
}

// Range returns the whole steps since this long ago, up to LongReach. Errors: *freeslot.Error
// (unavailable).
func (p *Prometheus) Range(ctx context.Context, now time.Time, since time.Duration) (Table, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	i := slices.IndexFunc(tiers[:], func(t tier) bool { return t.reach >= since })
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return Table{}, away(errors.New("another query takes too long"))
	}
	if kept := &p.kept[i]; time.Now().After(kept.until) {
		table, err := p.ask(ctx, now, i)
		if err != nil {
			return Table{}, away(err)
		}
		*kept = answered{table, time.Now().Add(queryFresh)}
	}
	table := p.kept[i].table
	from := float64(now.Add(-since).UnixMilli())
	first := slices.IndexFunc(table.Rows, func(row []*float64) bool { return *row[0] >= from-float64(table.StepMS) })
	table.Rows = table.Rows[max(first, 0):]
	return table, nil
}

// away is the error for callers. It holds no address and no token.
func away(err error) error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: 10 * time.Second,
		Message: "the Prometheus of console.prometheus_url does not serve: " + err.Error(),
	}
}

// ask sends the query of a tier.
func (p *Prometheus) ask(ctx context.Context, now time.Time, i int) (Table, error) {
	t := tiers[i]
	end := now.Truncate(t.step)
	form := url.Values{
		"query": {p.query[i]}, "step": {seconds(t.step)}, "timeout": {seconds(queryTimeout)},
		"start": {strconv.FormatInt(end.Add(t.step-t.reach).Unix(), 10)}, "end": {strconv.FormatInt(end.Unix(), 10)},
	}
	to := strings.TrimSuffix(p.cfg.URL, "/") + "/api/v1/query_range"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return Table{}, errors.New("its address cannot be used")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if p.cfg.TokenFile != "" {
		token, err := os.ReadFile(p.cfg.TokenFile)
		if err != nil {
			return Table{}, errors.New("console.prometheus_token_file cannot be read")
		}
		req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return Table{}, unreached(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, queryBytes+1))
	switch {
	case err != nil:
		return Table{}, errors.New("its answer breaks off")
	case len(text) > queryBytes:
		return Table{}, fmt.Errorf("its answer has more than %d bytes", queryBytes)
	case resp.StatusCode != http.StatusOK:
		return Table{}, fmt.Errorf("it answers %d, expected 200", resp.StatusCode)
	}
	return decodeMatrix(text, end.Add(-t.reach), t)
}

// unreached says why a query got no answer, without the addresses that errors of the network name:
// viewers see it.
func unreached(err error) error {
	dns, op, unverified := (*net.DNSError)(nil), (*net.OpError)(nil), (*tls.CertificateVerificationError)(nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return errors.New("it does not answer in time")
	case errors.As(err, &dns):
		return errors.New("its host has no address")
	case errors.As(err, &unverified):
		return errors.New("its certificate is not trusted")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused")
	case errors.Is(err, io.EOF), errors.As(err, &op) && op.Op == "read":
		return errors.New("it closes the connection without an answer (EOF)")
	default:
		return errors.New("it is not reached")
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// matrix is the answer of a range query.
type matrix struct {
	Data struct {
		Type   string `json:"resultType"`
		Result []struct {
			Metric map[string]string `json:"metric"`
			Values [][2]any          `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// decodeMatrix turns the answer into a table whose first step begins at begin. The value at a time
// is about the step before it. What is not a number is unknown, and foreign series are left out.
func decodeMatrix(text []byte, begin time.Time, t tier) (Table, error) {
	var m matrix
	if err := json.Unmarshal(text, &m); err != nil || m.Data.Type != "matrix" {
		return Table{}, errors.New("its answer is no matrix")
	}
	table := Table{StepMS: t.step.Milliseconds(), Columns: Columns()}
	table.Rows = make([][]*float64, t.reach/t.step)
	for i := range table.Rows {
		at := float64(begin.Add(time.Duration(i) * t.step).UnixMilli())
		table.Rows[i] = make([]*float64, len(table.Columns))
		table.Rows[i][0] = &at
	}
	for _, s := range m.Data.Result {
		column := slices.Index(table.Columns, s.Metric[seriesLabel])
		if column < 1 {
			continue
		}
		for _, v := range s.Values {
			at, timed := v[0].(float64)
			said, told := v[1].(string)
			value, err := strconv.ParseFloat(said, 64)
			row := int(math.Round((at - float64(begin.Unix())) / t.step.Seconds()))
			if !timed || !told || err != nil || math.IsNaN(value) || math.IsInf(value, 0) || row < 1 || row > len(table.Rows) {
				continue
			}
			value = math.Round(value*1000) / 1000
			table.Rows[row-1][column] = &value
		}
	}
	return table, nil
}

// seriesLabel is the label by which a query names its series.
const seriesLabel = "freeslot_series"

// queryOf returns the query for all series that Prometheus knows, as one: each has its name in a
// label. $l stands for the labels, $w for the step.
func queryOf(labels map[string]string, step time.Duration) string {
	var matchers []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		matchers = append(matchers, name+"="+strconv.Quote(labels[name]))
	}
	fill := strings.NewReplacer("$l", strings.Join(matchers, ","), "$w", seconds(step)+"s")
	parts := make([]string, 0, len(all))
	for _, s := range all {
		if q := queries[s.name]; q != "" {
			parts = append(parts, fmt.Sprintf("label_replace(%s,%q,%q,\"\",\"\")", fill.Replace(q), seriesLabel, s.name))
		}
	}
	return strings.Join(parts, " or ")
}

func endsOf(state string) string {
	return `sum(max by (cell,state) (rate(freeslot_jobs_ended_total{` + state + `$l}[$w])))`
}

func quantileOf(q, histogram string) string {
	return `1000*histogram_quantile(` + q + `,sum by (le) (rate(` + histogram + `_bucket{$l}[$w])))`
}

// queries holds the query of each series. What all replicas report is taken once.
var queries = map[string]string{
	"arrivals_placed": `sum(rate(freeslot_assign_seconds_count{$l}[$w]))`,
	"arrivals_queued": `sum(rate(freeslot_jobs_enqueued_total{$l}[$w]))`,
	"arrivals_refused": `sum(rate(freeslot_submits_total{$l}[$w]))-` +
		`(sum(rate(freeslot_submits_total{outcome="accepted",$l}[$w])) or 0*sum(rate(freeslot_submits_total{$l}[$w])))`,
	"ends":           endsOf(``),
	"ends_succeeded": endsOf(`state="succeeded",`),
	"ends_failed":    endsOf(`state="failed",`),
	"ends_dead":      endsOf(`state="dead",`),
	"ends_cancelled": endsOf(`state="cancelled",`),
	"ends_expired":   endsOf(`state="expired",`),
	"retries":        `sum(max by (cell) (rate(freeslot_jobs_retried_total{$l}[$w])))`,

	"assign_p50_ms": quantileOf(`0.5`, `freeslot_assign_seconds`),
	"assign_p99_ms": quantileOf(`0.99`, `freeslot_assign_seconds`),

	"waiting":        `sum(max by (cell) (max_over_time(freeslot_waiting_jobs{$l}[$w])))`,
	"held":           `sum(max by (cell) (max_over_time(freeslot_held_jobs{$l}[$w])))`,
	"oldest_wait_ms": `1000*max(max_over_time(freeslot_oldest_waiting_seconds{$l}[$w]))`,

	"slots_used":     `max(max_over_time(freeslot_slots{state="used",$l}[$w]))`,
	"slots_total":    `max(max_over_time(freeslot_slots{state="all",$l}[$w]))`,
	"nodes_online":   `max(max_over_time(freeslot_nodes{state="online",$l}[$w]))`,
	"nodes_draining": `max(max_over_time(freeslot_nodes{state="draining",$l}[$w]))`,
	"nodes_silent":   `max(max_over_time(freeslot_nodes{state="silent",$l}[$w]))`,

	"redis_call_p50_ms":  quantileOf(`0.5`, `freeslot_redis_call_seconds`),
	"redis_call_p99_ms":  quantileOf(`0.99`, `freeslot_redis_call_seconds`),
	"redis_memory_bytes": `max(max_over_time(freeslot_redis_memory_bytes{$l}[$w]))`,

	"events_delay_p50_ms": quantileOf(`0.5`, `freeslot_cache_event_delay_seconds`),
	"events_delay_p99_ms": quantileOf(`0.99`, `freeslot_cache_event_delay_seconds`),

	"replicas": `max_over_time(count(freeslot_outstanding_jobs{$l})[$w:5m])`,
	"replicas_cpu": `sum(rate(process_cpu_seconds_total{$l}[$w]) and on (instance,job) ` +
		`max_over_time(freeslot_outstanding_jobs{$l}[$w]))`,
	"replicas_memory_bytes": `sum(max_over_time(process_resident_memory_bytes{$l}[$w]) and on (instance,job) ` +
		`max_over_time(freeslot_outstanding_jobs{$l}[$w]))`,
}
