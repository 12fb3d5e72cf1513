package version

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// idsEnv is how many ids a build of the benchmark has.
const idsEnv = "FREESLOT_BENCH_IDS"

// BenchmarkBuild imports ids of 16 hexadecimal digits, with 1 % dirty lines, to a server of its
// own, and builds the same in other segments.
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
	}
}

func benchBuild(b *testing.B, r *rig, p *Plan, what string) *namelist.Version {
	b.Helper()
	steps := make(map[Step]time.Time)
	builder := r.builder()
	builder.Progress = func(p Progress) {
		if steps[p.Step].IsZero() {
			steps[p.Step] = time.Now()
		}
	}
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM begins again; where it cannot, the figure is too high
	idle := residentMiB("VmRSS")
	begin := time.Now()
	got, err := builder.Build(bounded(b), p)
	took := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(got.Version.Count)/took.Seconds(), what+"-ids/s")
	b.ReportMetric(residentMiB("VmHWM")-idle, what+"-MiB")
	var began []string
	for _, step := range []Step{StepParse, StepBase, StepSort, StepWrite, StepVerify} {
		if at := steps[step]; !at.IsZero() {
			began = append(began, fmt.Sprintf("%s at %s", step, at.Sub(begin).Round(time.Millisecond)))
		}
	}
	b.Logf("%s: %d ids, %d rejected, in %s, %d segments, sampled %.2f bytes an id; %s", what, got.Version.Count, got.Report.Rejected,
		took.Round(time.Millisecond), got.Version.Segments, float64(got.Version.Bytes)/float64(got.Version.Count), strings.Join(began, ", "))
	return &got.Version
}

// residentMiB is a line of Linux' report on this process; -1 elsewhere.
func residentMiB(line string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte(line+":"))
	var kb float64
	if _, err := fmt.Sscanf(string(rest), "%f kB", &kb); err != nil {
		return -1
	}
	return kb / 1024
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
