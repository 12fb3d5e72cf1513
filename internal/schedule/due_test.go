package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/cron"
)

// TestDue against a twin that lists all runs.
func TestDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, err := cron.Parse(rapid.SampledFrom([]string{"@every 1s", "@every 7s", "*/5 * * * *", "@hourly", "30 2 * * *"}).Draw(t, "cron"), "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		s := &Definition{OnMissed: rapid.SampledFrom([]OnMissed{"", Skip, Latest, All}).Draw(t, "policy"), GraceMS: int64(rapid.SampledFrom([]int{0, 1, 5000, 3600_000}).Draw(t, "grace"))}
		next := e.NextMS(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC).UnixMilli() + rapid.Int64Range(0, 3*24*3600_000).Draw(t, "next"))
		now := next + rapid.Int64Range(0, rapid.SampledFrom([]int64{10, 10_000, 3600_000, 48 * 3600_000}).Draw(t, "scale")).Draw(t, "late")
		var runs []int64
		at := next
		for ; at <= now; at = e.NextMS(at) {
			runs = append(runs, at)
		}
		n := len(runs)
		want := decision{runMS: runs[n-1], missed: uint64(n - 1)}
		grace := s.GraceMS
		if grace == 0 {
			grace = 60_000
		}
		switch {
		case s.OnMissed == All && n > 100:
			want = decision{runMS: runs[n-100], missed: uint64(n - 100)}
		case s.OnMissed == All:
			want = decision{runMS: runs[0]}
		case s.OnMissed == Skip && now-runs[n-1] > grace:
			want = decision{missed: uint64(n), nextMS: at}
		}
		if got := due(&e, s, next, now); got != want {
			t.Fatal(cmp.Diff(want, got, cmp.AllowUnexported(decision{})))
		}
	})
}

// TestDueAfterAges: a schedule that was not looked at for years is no burden.
func TestDueAfterAges(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	now := begin + 20*365*24*3600_000
	const half = 30_000
	e := parsed(t, "@every 1s", "")
	if got := due(&e, &Definition{}, begin, now); got.runMS != now || got.missed != 20*365*24*3600 {
		t.Errorf("%+v; want got.runMS == %v, got.missed == 20*365*24*3600", got, now)
	}
	e = parsed(t, "* * * * *", "")
	if got := due(&e, &Definition{}, begin, now+half); got.runMS != now || got.missed < maxWalk {
		t.Errorf("%+v; want got.runMS == %v, got.missed >= %v", got, now, maxWalk)
	}
}

func parsed(t testing.TB, expression, zone string) cron.Expression {
	t.Helper()
	e, err := cron.Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
