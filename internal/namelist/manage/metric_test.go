package manage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// series are the values of all series by name and labels; of a histogram it is the count.
func series(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "freeslot_lists_") + " " + strings.Join(labels, " ")
			out[strings.TrimSpace(name)] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// What a replica has done for lists, and how they stand.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.check(r.Stop(r.ctx))
	reg := prometheus.NewRegistry()
	m := New(Config{Self: "r2", Dir: t.TempDir(), Pause: 20 * time.Millisecond, Server: r.server, Metrics: reg}, r.control, zaptest.NewLogger(t))
	r.check(m.Start(r.ctx))
	t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	r.Manager = m
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{Settings: namelist.Settings{Expires: time.Now().Add(time.Hour)}})
	r.check(err)
	_, err = r.control.Create(r.ctx, "draft", namelist.Spec{Settings: namelist.Settings{Expires: time.Now().Add(48 * time.Hour)}})
	r.check(err)
	content := lines(0, 100)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, content)
	r.serves("vip", 1)
	_, err = r.control.Edit(r.ctx, "vip", namelist.EditRequest{Changes: []namelist.Change{{Entry: namelist.Entry{ID: "a"}}, {Entry: namelist.Entry{ID: "b"}}}, By: by})
	r.check(err)
	client := r.redis.Client(t)
	r.check(client.Do(r.ctx, client.B().Del().Key(r.dataKeys()[0]).Build()).Error())
	if v, err := r.Verify(r.ctx, "vip", 1); err != nil || v.Damaged == "" {
		t.Fatal(v, err)
	}

	want := map[string]float64{
		"lists active": 1, "lists draft": 1, "lists frozen": 0, "edits": 2, "expiring": 1, "damaged": 1, "operations_running": 0,
		"operation_seconds import done": 1, "operation_seconds switch done": 1, "built_ids_total": 100, "damages_total": 1,
		"taken_over_total": 0, "late_compactions_total": 0, "swept_builds_total": 0,
	}
	var got map[string]float64
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(got)
		}
	})
	r.until(fmt.Sprint("the metrics are ", want), func() bool {
		got = series(t, reg)
		for name, value := range want {
			if v, ok := got[name]; !ok || v != value {
				return false
			}
		}
		return true
	})
	if got["upload_bytes_total"] < float64(len(content)) {
		t.Errorf("%v bytes were received of %d", got["upload_bytes_total"], len(content))
	}
}
