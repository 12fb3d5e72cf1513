// Command record writes testdata/healthy.txt: what a healthy system said of itself for some
// minutes. It starts Redis, two replicas, an agent with Redis and an agent by gateway, as
// processes, and lets jobs, a schedule, a lock and a list work. It is run in test/boards, after
// make build:
//
//	go run ./record -bin ../../bin
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/lock"
	"github.com/freeslot/freeslot/namelist"
	"github.com/freeslot/freeslot/test/boards"
)

const interval = 15 * time.Second

var (
	bin     = flag.String("bin", "../../bin", "folder of the programs")
	minutes = flag.Int("minutes", 5, "how long to record")
	out     = flag.String("o", "testdata/healthy.txt", "file to write")
	rules   = flag.String("rules", "../../deploy/prometheus/freeslot.rules.yaml", "rules, whose metrics are kept")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := record(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// target is a process whose metrics are recorded.
type target struct {
	job, instance string
	url           string               // of /metrics
	registry      *prometheus.Registry // of this process, instead of url
}

func record(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	s := &system{dir: dir, redis: server.New(server.Config{
		AppendOnly: true, ExtraArgs: []string{"--maxmemory", "256mb", "--maxmemory-policy", "noeviction"},
	})}
	defer func() {
		end()
		s.all.Wait()
		err = errors.Join(err, s.redis.Stop(context.Background()), os.RemoveAll(dir))
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.write(ctx)
}

// system is what is recorded. All that it starts ends with the context.
type system struct {
	dir     string
	redis   *server.Server
	all     sync.WaitGroup
	targets []target
}

func (s *system) start(ctx context.Context) error {
	if err := s.redis.Start(ctx); err != nil {
		return err
	}
	secret, digest := gateway.NewSecret()
	line, err := (&gateway.Token{Name: "record", Digest: digest, Nodes: []string{"node-2"}}).Line()
	if err != nil {
		return err
	}
	var replicas []string
	for _, name := range []string{"a", "b"} {
		addr, err := s.program(ctx, "freeslot", name, "scheduler",
			"listen: ADDR\nredis: {url: "+s.redis.URL()+"}\nreplica_id: "+name+
				"\ngateway: {tokens_file: "+s.file("tokens", line+"\n")+"}\nlists: {dir: "+filepath.Join(s.dir, name)+"}\n")
		if err != nil {
			return err
		}
		replicas = append(replicas, addr)
	}
	services := "services:\n  - name: echo\n    command: {argv: [cat]}\n    check: {tcp: {address: " + s.redis.Addr() +
		"}}\n"
	for name, way := range map[string]string{
		"node-1": "redis: {url: " + s.redis.URL() + "}\n",
		"node-2": "gateway: ws://" + strings.Join(replicas, ",ws://") + "\ntoken_file: " + s.file("token", secret) + "\n",
	} {
		if _, err := s.program(ctx, "freeslot-agents", name, "nodeagent",
			"metrics_listen: ADDR\n"+way+"node: {id: "+name+", max_concurrency: 4}\n"+services); err != nil {
			return err
		}
	}
	return s.load(ctx, "http://"+replicas[0])
}

func (s *system) file(name, text string) string {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err) // the folder is ours
	}
	return path
}

// program starts a program with a configuration, in which ADDR is its address, and waits until it
// answers.
func (s *system) program(ctx context.Context, job, instance, program, config string) (addr string, err error) {
	port, err := server.FreePort()
	if err != nil {
		return "", err
	}
	addr = "127.0.0.1:" + strconv.Itoa(port)
	args := []string{"--config", s.file(instance+".yaml", strings.ReplaceAll(config, "ADDR", addr))}
	if program == "scheduler" {
		args = append([]string{"serve"}, args...)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(*bin, program), args...)
	log, err := os.Create(filepath.Join(s.dir, instance+".log"))
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.all.Go(func() { _ = cmd.Wait() })
	t := target{job: job, instance: instance, url: "http://" + addr + "/metrics"}
	s.targets = append(s.targets, t)
	for {
		if _, err = t.scrape(ctx); err == nil {
			return addr, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return "", errors.Join(ctx.Err(), err)
		}
	}
}

// load lets everything work that metrics tell of.
func (s *system) load(ctx context.Context, replica string) error {
	for _, step := range [][3]string{
		{http.MethodPut, "/v1/schedules/beat", `{"cron":"@every 20s","job":{"service":"echo"}}`},
		{http.MethodPut, "/v1/lists/vip", `{}`},
	} {
		if err := call(ctx, step[0], replica+step[1], step[2]); err != nil {
			return err
		}
	}
	ids := exec.CommandContext(
		ctx, filepath.Join(*bin, "schedctl"), "--server", replica, "lists", "import", "vip", s.file("ids", "user-1\n"),
	)
	if text, err := ids.CombinedOutput(); err != nil {
		return fmt.Errorf("lists import: %w: %s", err, text)
	}
	registry := prometheus.NewRegistry()
	s.targets = append(s.targets, target{job: "app", instance: "app", registry: registry})
	locks, err := lock.New(lock.Options{RedisURL: s.redis.URL(), Registerer: registry})
	if err != nil {
		return err
	}
	lists, err := namelist.Open(namelist.Config{RedisURL: s.redis.URL(), Registerer: registry})
	if err != nil {
		return err
	}
	if err := locks.Start(ctx); err != nil {
		return err
	}
	key, err := locks.Get(lock.Config{Key: "nightly"})
	if err != nil {
		return err
	}
	list := lists.List("vip")
	s.every(ctx, 200*time.Millisecond, func() error {
		return call(ctx, http.MethodPost, replica+"/v1/jobs?wait_ms=10000", `{"service":"echo","payload":{"a":1}}`)
	})
	s.every(ctx, time.Second, func() error {
		list.Check(ctx, "user-1")
		return key.Do(ctx, func(held context.Context, _ int64) error { pause(held, 500*time.Millisecond); return nil })
	})
	return nil
}

func (s *system) every(ctx context.Context, rest time.Duration, f func() error) {
	s.all.Go(func() {
		for pause(ctx, rest) {
			if err := f(); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "record:", err)
			}
		}
	})
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func call(ctx context.Context, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s %s", method, url, resp.Status, answer)
	}
	return err
}

// scrape returns the families of a target.
func (t *target) scrape(ctx context.Context) ([]*dto.MetricFamily, error) {
	if t.registry != nil {
		return t.registry.Gather()
	}
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	byName, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s %w", t.url, resp.Status, err)
	}
	var all []*dto.MetricFamily
	for _, f := range byName {
		all = append(all, f)
	}
	return all, nil
}

// write records the targets, after a minute in which the system settles.
func (s *system) write(ctx context.Context) error {
	kept, err := metrics(*rules)
	if err != nil {
		return err
	}
	if !pause(ctx, time.Minute) {
		return ctx.Err()
	}
	rec := recording{begin: time.Now(), series: make(map[string][]string)}
	count := *minutes*int(time.Minute/interval) + 1
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := range count {
		for i := range s.targets {
			t := &s.targets[i]
			families, err := t.scrape(ctx)
			if err != nil {
				return err
			}
			rec.add(n, "up", t.labels(nil), 1)
			for _, f := range families {
				if kept[f.GetName()] {
					rec.family(n, t, f)
				}
			}
		}
		fmt.Fprintf(os.Stderr, "record: %d of %d\n", n+1, count)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return rec.write(count)
}

// metrics returns the families that the rules use.
func metrics(file string) (map[string]bool, error) {
	all, err := boards.Rules(file)
	if err != nil {
		return nil, err
	}
	kept := make(map[string]bool)
	for _, r := range all {
		for _, use := range r.Query.Uses {
			kept[use.Metric], kept[boards.Base(use.Metric)] = true, true
		}
	}
	return kept, nil
}

func (t *target) labels(pairs []*dto.LabelPair) string {
	var all []string
	for _, p := range pairs {
		all = append(all, fmt.Sprintf("%s=%q", p.GetName(), p.GetValue()))
	}
	all = append(all, fmt.Sprintf("instance=%q", t.instance), fmt.Sprintf("job=%q", t.job))
	slices.Sort(all)
	return strings.Join(all, ",")
}

// recording holds the values of each series, "_" where there was none.
type recording struct {
	begin  time.Time
	series map[string][]string
}

func (r *recording) family(n int, t *target, f *dto.MetricFamily) {
	for _, m := range f.GetMetric() {
		labels := t.labels(m.GetLabel())
		h := m.GetHistogram()
		switch value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue(); { // two are 0
		case h != nil:
			for _, b := range h.GetBucket() {
				r.add(
					n, f.GetName()+"_bucket", labels+fmt.Sprintf(",le=%q", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)),
					float64(b.GetCumulativeCount()),
				)
			}
			r.add(n, f.GetName()+"_count", labels, float64(h.GetSampleCount()))
		case strings.HasSuffix(f.GetName(), "_timestamp_seconds"):
			r.add(n, f.GetName(), labels, value-float64(r.begin.Unix()))
		default:
			r.add(n, f.GetName(), labels, value)
		}
	}
}

func (r *recording) add(n int, name, labels string, value float64) {
	id := name + "{" + labels + "}"
	for len(r.series[id]) < n {
		r.series[id] = append(r.series[id], "_")
	}
	r.series[id] = append(r.series[id], strconv.FormatFloat(value, 'g', 6, 64))
}

func (r *recording) write(count int) error {
	var text bytes.Buffer
	fmt.Fprintf(&text,
		"# A healthy system, every %s for %d minutes from %s on, written by test/boards/record: two replicas, an agent\n"+
			"# with Redis, an agent by gateway, and a program with a lock and a list, while jobs of a client and of a "+
			"schedule ran.\n"+
			"# Only metrics of the alerts. Times of day are relative to the begin.\n",
		interval, *minutes, r.begin.UTC().Format("2006-01-02"))
	var ids []string
	for id := range r.series {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		for len(r.series[id]) < count {
			r.series[id] = append(r.series[id], "_")
		}
		fmt.Fprintln(&text, id, strings.Join(r.series[id], " "))
	}
	return errors.Join(os.MkdirAll(filepath.Dir(*out), 0o755), os.WriteFile(*out, text.Bytes(), 0o644))
}
