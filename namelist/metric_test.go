package namelist

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/reference"
)

// TestMetricsReference: the values of a loaded list. The reference has all names.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.create("vip", lists.Spec{Settings: lists.Settings{Expires: time.Now().Add(time.Hour)}})
	v := r.publish("vip", entriesOf("a1", "a2", "a3"))
	revision := r.edit("vip", add("b1"), drop("a1"))
	reg := prometheus.NewRegistry()
	c := r.open(func(cfg *Config) { cfg.Registerer = reg })
	for _, bad := range []string{"", "a_b", "\xff"} {
		c.List(bad)
	}
	l := c.List("vip")
	r.ready(l)
	want(t, l.Check(bounded(t), "a2"), Yes, SourceRedis, ReasonNone)
	_, err := r.data.Do(bounded(t), r.data.B().Del().Key(lists.SegmentKey(r.prefix, "vip", v.Number, 0)).Build()).AsInt64()
	r.must(err)
	want(t, l.Check(bounded(t), "a3"), Unknown, SourceNone, ReasonSegment)

	for name, value := range map[string]float64{
		"asked_total": 2, `unknown_total{reason="segment missing"}`: 1, "lists": 1, "asks_in_flight": 0, "stale_lists": 0,
		`list_version{list="vip"}`: float64(v.Number), `list_revision{list="vip"}`: float64(revision),
		`list_blocks{list="vip"}`: 2, `list_blocks_loaded{list="vip"}`: 2, `list_edits{list="vip"}`: 2,
	} {
		if got, ok := read(t, reg, "freeslot_namelist_"+name); !ok || got != value {
			t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
	for name, most := range map[string]float64{"age_seconds": 20, "expires_seconds": 3600, "bytes": 10_000} {
		if got, ok := read(t, reg, "freeslot_namelist_list_"+name+`{list="vip"}`); !ok || got <= 0 || got > most {
			t.Errorf("%s is %v, want up to %v", name, got, most)
		}
	}
	reference.Check(t, "metrics.md", "package namelist", reference.Metrics(t, reg))

	for i := range 2 * listSeries {
		c.List(fmt.Sprintf("list-%d", i))
	}
	if n, err := testutil.GatherAndCount(reg, "freeslot_namelist_list_version"); err != nil || n != listSeries {
		t.Errorf("%d lists have metrics, want %d: %v", n, listSeries, err)
	}
}

// read is the value of a series, with its one label.
func read(t *testing.T, reg *prometheus.Registry, series string) (float64, bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if name == series {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}
