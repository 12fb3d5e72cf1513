package reader

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// A client that invents thousands of readers delays no switch, and takes no other tenant's reader.
func TestInventedReaders(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r := newRig(t, redis)
	calls := prometheus.NewRegistry()
	control := namelist.NewControl(redis.RoleClient(t), r.prefix, redis.IsCluster(), zap.NewNop(), calls)
	m := manage.New(manage.Config{
		Self: "r1", Dir: t.TempDir(), Server: func(ctx context.Context, name string) (*version.Segments, error) { return r.cfg.Server(ctx, name) },
	}, control, zap.NewNop())
	r.must(m.Start(bounded(t)))
	t.Cleanup(func() { r.must(m.Stop(context.Background())) })
	r.create("vip")
	first := r.publish("vip", "a")
	second := r.publish("vip", "a", "b")
	h, err := r.control.Head(bounded(t), "vip")
	r.must(err)

	honest := fmt.Sprintf(`{"client":"web-1","lists":{"vip":{"birth":"%s","serves":%d,"loaded":[%d,%d]}}}`, h.Birth, second.Number, second.Number, first.Number)
	report := func(token []string, body string) string {
		t.Helper()
		got := r.Do(t, "POST", "/v1/list-reports", body, token...)
		if got.Status != 200 {
			t.Fatalf("report: %d %s; want 200", got.Status, got.Text)
		}
		return got.Text
	}
	// switched returns how often a switch has counted clients until it was over.
	switched := func(number int64) int {
		t.Helper()
		begun := counted(t, calls)
		_, err := m.Switch(bounded(t), "vip", manage.SwitchRequest{Number: number, Serving: namelist.AnyVersion, By: namelist.By{Author: "test"}})
		r.must(err)
		waittest.Until(t, "the switch is over", func() bool {
			h, err := r.control.Head(bounded(t), "vip")
			r.must(err)
			return h.Op.ID == "" && h.Serving.Number == number
		})
		return counted(t, calls) - begun
	}
	report(acme, honest)
	without := switched(first.Number)

	evil := []string{"Authorization", "Bearer other-token"}
	refused := 0
	for i := range 3000 {
		if strings.Contains(report(evil, fmt.Sprintf(`{"client":"c%d","lists":{"vip":{"birth":"%s","serves":%d}}}`, i, h.Birth, first.Number)), `"refused":["vip"]`) {
			refused++
		}
	}
	report(evil, fmt.Sprintf(`{"client":"web-1","lists":{"vip":{"birth":"%s","serves":77}}}`, h.Birth))
	report(evil, `{"client":"web-1","lists":{"vip":{"birth":""}}}`)
	if want := 3000 - namelist.ReportClients; refused != want {
		t.Errorf("%d reports are refused; want %d", refused, want)
	}
	live, _, err := r.control.Clients(bounded(t), "vip")
	r.must(err)
	mine := 0
	for _, c := range live {
		if c.Owner == "acme" && c.ID == "web-1" && c.Serves == second.Number {
			mine++
		}
	}
	if len(live) != namelist.ReportClients+1 || mine != 1 {
		t.Errorf("%d clients, %d of them the honest one; want %d and 1", len(live), mine, namelist.ReportClients+1)
	}
	if with := switched(second.Number); with != without {
		t.Errorf("the switch has counted clients %d times; want %d, as without invented ones", with, without)
	}
}

// counted returns how often clients that lack a version were counted.
func counted(t *testing.T, from *prometheus.Registry) int {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "freeslot_redis_call_seconds" && m.GetLabel()[0].GetValue() == "lacking" {
				return int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}
