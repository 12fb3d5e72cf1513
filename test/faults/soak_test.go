package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// soakRetention is short, so that what is kept is level long before the second quarter, and
	// hardly depends on how fast jobs end.
	soakRetention = 5 * time.Second
	// soakSamples is how many samples are taken, but not more than one a second.
	soakSamples = 360
	soakStop    = time.Minute
)

// TestSoak runs a steady load for SOAK, such as 1h, and compares the memory and the goroutines of
// all processes in the second and in the last quarter. What was measured is left in .dev/soak.
func TestSoak(t *testing.T) {
	text := os.Getenv("SOAK")
	if text == "" {
		t.Skip("runs with SOAK=1h, or as make soak")
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < time.Minute {
		t.Fatalf("SOAK is %q, expected one such as 1h, at least 1m", text)
	}
	folder := filepath.Join(filepath.Dir(logs), "soak")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	rec := NewRecorder()
	rec.forget = true
	redis := redistest.New(t, redistest.AppendOnly("everysec"))
	f := newFleet(t, rec, folder, fleetConfig{
		replicas: 2, slots: []int{6, 6}, cells: 1, store: &store{url: redis.Process().URL()}, metrics: true,
		replica: map[string]any{"retention": soakRetention.String(), "idempotency_retention": soakRetention.String()},
	})
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	load := startSoakLoad(ctx, t, f)
	samples := f.sample(ctx, length)
	load.stop(soakStop)
	t.Log(load.summary())
	if want := int(length.Seconds() * soakRate / 4); load.done() < want {
		t.Errorf("%d jobs have ended, expected at least %d: so few prove nothing", load.done(), want)
	}
	save := func(name string, write func(w io.Writer) error) {
		file, err := os.Create(filepath.Join(folder, name))
		if err == nil {
			err = errors.Join(write(file), file.Close())
		}
		if err != nil {
			t.Errorf("write %s: %v", name, err)
		}
	}
	growths := Judge(samples, length)
	save("samples.csv", func(w io.Writer) error { return WriteSamples(w, samples) })
	save("verdict.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(growths) })
	if want := 2*len(f.programs) + 2; len(growths) != want {
		t.Errorf("%d series were measured, expected %d", len(growths), want)
	}
	for _, g := range growths {
		if g.Grew {
			t.Errorf("%s", g)
		} else {
			t.Logf("%s", g)
		}
	}
	t.Logf("the samples are in %s", folder)
}

// sample measures until ctx ends. What does not answer in time has no value in a sample.
func (f *fleet) sample(ctx context.Context, length time.Duration) []Sample {
	f.t.Helper()
	redis, err := f.client()
	if err != nil {
		f.t.Fatal(err)
	}
	defer redis.Close()
	web := &http.Client{Timeout: lookLimit, Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	begin := time.Now()
	var samples []Sample
	for pause(ctx, max(time.Second, length/soakSamples)) {
		s := Sample{At: time.Since(begin), Values: map[string]float64{}}
		for name, addr := range f.metrics {
			figures, err := scrape(ctx, web, addr)
			if err != nil {
				continue
			}
			s.Values["rss "+name] = figures["process_resident_memory_bytes"]
			s.Values[goroutines+name] = figures["go_goroutines"]
		}
		if err := readRedis(ctx, redis, s.Values); err != nil && ctx.Err() == nil {
			f.t.Errorf("Redis cannot be read: %v", err)
		}
		samples = append(samples, s)
	}
	return samples
}

// scrape reads the metrics, by their names and labels.
func scrape(ctx context.Context, web *http.Client, addr string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	figures := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			figures[name] = value
		}
	}
	for _, name := range []string{"process_resident_memory_bytes", "go_goroutines"} {
		if figures[name] == 0 {
			return nil, fmt.Errorf("%s tells no %s", addr, name)
		}
	}
	return figures, lines.Err()
}

func readRedis(ctx context.Context, redis rueidis.Client, values map[string]float64) error {
	limit, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	info, err := redis.Do(limit, redis.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r")
	used, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("used_memory is %q", text)
	}
	keys, err := redis.Do(limit, redis.B().Dbsize().Build()).AsInt64()
	if err != nil {
		return err
	}
	values["used_memory redis"], values["keys redis"] = used, float64(keys)
	return nil
}
