package history

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

// keeper starts a keeper of its own history.
func keeper(t *testing.T, r *scripttest.Rig, replica string) *Keeper {
	k := NewKeeper(New(), NewStore(r.Runner), replica, zaptest.NewLogger(t))
	_ = k.Start(t.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := k.Stop(ctx); err != nil {
			t.Errorf("stop: %v; want nil", err)
		}
	})
	return k
}

// TestMinutesAreKept: of several replicas one writes each minute, an embedded one never, and a
// replica that starts later shows the same minutes.
func TestMinutesAreKept(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		names := []string{"a", "b", "c"}
		var keepers []*Keeper
		for _, name := range names {
			keepers = append(keepers, keeper(t, r, name))
		}
		entries := func() int64 { return r.Int("XLEN", keysOf(r.Runner.Layout()).minutes) }
		now, minutes := epoch, int64(0)
		for n := uint64(0); minutes < 6; n++ {
			embedded := Figures{StartMS: epoch - 1000, Cells: 1, Counters: [counters]uint64{Placed: 10 * n}}
			all := []Report{{"0-embedded", now, embedded.Encode()}}
			for _, name := range names {
				f := Figures{StartMS: epoch - 1000, Keeps: true, Cells: 1, Counters: [counters]uint64{Placed: 10 * n}}
				f.Histograms[Assign][10] = 10 * n
				all = append(all, Report{name, now, f.Encode()})
			}
			for _, k := range keepers {
				k.Observe(now, all)
			}
			now += 2000
			if whole := (now - 2000 - epoch) / 60_000; whole > minutes {
				minutes = whole
				waittest.Until(t, "the minute to be written", func() bool { return entries() >= minutes })
			}
		}
		late := New()
		late.Restore(func() []Minute {
			all, err := NewStore(r.Runner).Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return append(all, Minute{AtMS: epoch + 1, Text: "\x01"}, Minute{AtMS: epoch, Text: "\x09"})
		}())
		f := Figures{StartMS: now, Keeps: true, Cells: 1}
		late.Observe(now+1000, []Report{{"d", now + 1000, f.Encode()}})
		want := column(keepers[0].history.Range(5*time.Minute, Coarse), "arrivals_placed")
		if got := column(late.Range(5*time.Minute, Coarse), "arrivals_placed"); !slices.Equal(got, want) ||
			!slices.Contains(got, "20") {
			t.Errorf("after a start %v; want %v", got, want)
		}
		// The finer rings have what is known of the minute.
		if got := column(late.Range(3*time.Minute, Fine), "assign_p50_ms"); !slices.Contains(got, "0.875") {
			t.Errorf("times to assign in fine steps %v; want 0.875", got)
		}
	})
}

// TestRestoreLeavesOut: what this process has seen itself is not added again.
func TestRestoreLeavesOut(t *testing.T) {
	t.Parallel()
	h, f := New(), Figures{StartMS: epoch, Cells: 1}
	for i := range int64(40) {
		f.Counters[Placed] = uint64(20 * i)
		h.Observe(epoch+2000*i, []Report{{"a", epoch + 2000*i, f.Encode()}})
	}
	p := point{covered: 60_000}
	p.sums[Placed] = 6000
	h.Restore([]Minute{{epoch - 60_000, p.encode()}, {epoch, p.encode()}})
	if got := column(h.Range(2*time.Minute, Coarse), "arrivals_placed"); !slices.Equal(got, []string{"100", "10"}) {
		t.Errorf("placed %v; want 100 of Redis, 10 of our own", got)
	}
}

// TestWriterOfMinutes: exactly one of the replicas that ran for all of a minute writes it.
func TestWriterOfMinutes(t *testing.T) {
	t.Parallel()
	h, wrote := New(), map[string]int{}
	for _, name := range []string{"a", "b", "young"} {
		h.replicas[name] = known{figures: Figures{Keeps: true, StartMS: epoch}}
	}
	h.replicas["young"] = known{figures: Figures{Keeps: true, StartMS: epoch + 50*60_000}}
	for i := range int64(100) {
		var writers []string
		for _, name := range []string{"a", "b", "young", "stranger"} {
			if h.writes(name, epoch+i*60_000) {
				writers = append(writers, name)
				wrote[name]++
			}
		}
		if len(writers) != 1 || i < 50 && writers[0] == "young" {
			t.Errorf("minute %d is written by %v; want one that ran", i, writers)
		}
	}
	if len(wrote) != 3 {
		t.Errorf("written by %v; want all three in turn", wrote)
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	h, f := New(), Figures{StartMS: epoch, Cells: 1, Memory: Unknown}
	for i := range int64(40) {
		f.Counters[Placed] = uint64(20 * i)
		h.Observe(epoch+2000*i, []Report{{"a", epoch + 2000*i, f.Encode()}})
	}
	s := apitest.New(t, api.Config{}, func(d *api.Deps) { d.Routes = []api.Routes{h.Routes} })
	for _, test := range []struct {
		query  string
		status int
		want   string
	}{
		{"", 200, `"step_ms":2000,"columns":["t_ms","arrivals_placed",`},
		{"", 200, fmt.Sprintf(`[%d,10,0,0,`, epoch)},
		{"?since=3h", 200, `"step_ms":10000`},
		{"?since=24h", 200, `"step_ms":60000`},
		{"?since=1m&step=1m", 200, `"step_ms":60000`},
		{"?since=1h&step=2s", 400, `"field":"step"`},
		{"?since=25h", 400, `"field":"since"`},
		{"?since=-1m", 400, `"field":"since"`},
		{"?since=soon", 400, `"field":"since"`},
		{"?step=3s", 400, `step`},
	} {
		got := s.Do(t, http.MethodGet, "/v1/history"+test.query, "")
		if got.Status != test.status || !strings.Contains(got.Text, test.want) {
			t.Errorf("%s: %d %.300s; want %d, %s", test.query, got.Status, got.Text, test.status, test.want)
		}
	}
	if rows := s.Do(t, http.MethodGet, "/v1/history?since=10s", "").Body["rows"].([]any); len(rows) != 5 {
		t.Errorf("%d rows of 10 s; want 5", len(rows))
	}
	if len(Help()) != len(Columns())-1 {
		t.Errorf("%d meanings of %d columns; want one for each but the time", len(Help()), len(Columns()))
	}
}
