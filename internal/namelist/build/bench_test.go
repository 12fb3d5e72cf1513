package build

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/redis/redistest"
)

// idsEnv is how many ids a build of the benchmark has.
const idsEnv = "FREESLOT_BENCH_IDS"

// BenchmarkBuild imports ids of 16 hexadecimal digits, with 1 % dirty lines, to a server of its own,
// and builds the same in other segments.
func BenchmarkBuild(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv(idsEnv); text != "" {
		n, _ = strconv.Atoi(text)
	}
	path := benchFile(b, n)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		redis := redistest.New(b)
		r := newRig(b, redis.Target, func(c *SegmentsConfig) { c.Prefix = "scheduler" })
		empty, _, err := r.Memory(bounded(b))
		if err != nil {
			b.Fatal(err)
		}
		p := r.plan(func(p *Plan) {
			p.Upload = &Upload{Open: func() (io.ReadCloser, error) { return os.Open(path) }, Bytes: info.Size(), Format: CSV}
		})
		v := benchBuild(b, r, p, "import")
		used, _, err := r.Memory(bounded(b))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(used-empty)/float64(v.Count), "redis-B/id")
		benchBuild(b, r, r.plan(r.from(v)), "expand")
		if err := os.RemoveAll(filepath.Join(b.TempDir(), "spool")); err != nil {
			b.Fatal(err)
		}
	}
}

func benchBuild(b *testing.B, r *rig, p *Plan, what string) *namelist.Version {
	b.Helper()
	steps, last := make(map[Step]time.Time), Step("")
	builder := r.builder()
	builder.Progress = func(p Progress) {
		if last = p.Step; steps[last].IsZero() {
			steps[last] = time.Now()
		}
	}
	peak := watchHeap(b)
	begin := time.Now()
	got, err := builder.Build(bounded(b), p)
	took := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(got.Version.Count)/took.Seconds(), what+"-ids/s")
	b.ReportMetric(float64(peak())/(1<<20), what+"-MiB")
	for step, at := range steps {
		b.Logf("%s: %s began at %s", what, step, at.Sub(begin).Round(time.Millisecond))
	}
	b.Logf("%s: %d ids, %d rejected, in %s, %d segments, sampled %.2f bytes an id", what, got.Version.Count, got.Report.Rejected,
		took.Round(time.Millisecond), got.Version.Segments, float64(got.Version.Bytes)/float64(got.Version.Count))
	return &got.Version
}

// watchHeap returns a function that ends it and returns the most memory that Go had from the system
// in use, beyond that at the begin.
func watchHeap(b *testing.B) func() uint64 {
	b.Helper()
	runtime.GC()
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	idle, most := inUse(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, inUse())
			case <-stop:
				return
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return max(most, idle) - idle
	}
}

func benchFile(b *testing.B, n int) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "ids.csv")
	r := rand.New(rand.NewPCG(1, 2))
	var content bytes.Buffer
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for i := range n {
		if i%100 == 99 {
			fmt.Fprintf(&content, "%016x,someday\n", r.Uint64())
		} else {
			var raw [8]byte
			for j := range raw {
				raw[j] = byte(r.Uint32())
			}
			content.WriteString(hex.EncodeToString(raw[:]) + "\n")
		}
		if content.Len() > 1<<20 || i == n-1 {
			if _, err := content.WriteTo(f); err != nil {
				b.Fatal(err)
			}
		}
	}
	return path
}
