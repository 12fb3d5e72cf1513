package cron

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

func parsed(t testing.TB, expression, zone string) Expression {
	t.Helper()
	e, err := Parse(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestNext has the changes of the clocks: New York goes from 2:00 to 3:00 on 2026-03-08 and
// from 2:00 back to 1:00 on 2026-11-01.
func TestNext(t *testing.T) {
	t.Parallel()
	const berlin, york = "Europe/Berlin", "America/New_York"
	for _, c := range []struct{ cron, zone, after, want string }{
		{"*/15 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z"},
		{"*/15 * * * *", "", "2026-01-01T00:14:59.999Z", "2026-01-01T00:15:00Z"},
		{"30 4 * * 1-5", berlin, "2026-01-02T04:00:00Z", "2026-01-05T03:30:00Z"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"@hourly", "", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"},
		{"@daily", berlin, "2026-07-01T12:00:00Z", "2026-07-01T22:00:00Z"},
		{"0 12 1 * 1", "", "2026-01-01T12:00:00Z", "2026-01-05T12:00:00Z"}, // the first, and each Monday
		{"@every 1h30m", york, "2026-03-08T06:00:00Z", "2026-03-08T07:30:00Z"},
		{"@every 1s", "", "2026-01-01T00:00:00.25Z", "2026-01-01T00:00:01.25Z"},
		// Left out: when the clocks are changed, once.
		{"30 2 * * *", york, "2026-03-08T06:59:00Z", "2026-03-08T07:00:00Z"},
		{"0,30 2 * * *", york, "2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"},
		{"30 2 8 3 *", york, "2026-03-01T00:00:00Z", "2026-03-08T07:00:00Z"},
		{"30 * * * *", york, "2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z"},
		// Twice: the first time, unless every hour is meant.
		{"30 1 * * *", york, "2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z"},
		{"30 1 * * *", york, "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		{"30 1 * * *", york, "2026-11-01T06:15:00Z", "2026-11-02T06:30:00Z"},
		{"30 * * * *", york, "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"},
		{"*/30 1-2 * * *", york, "2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z"},
		// Half an hour, midnight, and a day that is left out whole.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T15:29:00Z", "2026-10-03T15:30:00Z"},
		{"30 0 * * *", "America/Havana", "2026-03-08T04:59:00Z", "2026-03-08T05:00:00Z"},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-30T10:00:00Z"},
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		e := parsed(t, c.cron, c.zone)
		if got := e.Next(after).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%q in %q after %s: %s, expected %s", c.cron, c.zone, c.after, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, zone, field, part string }{
		{"", "", "cron", "expected five fields"},
		{"* * * *", "", "cron", "expected five fields"},
		{"0 * * * * *", "", "cron", "expected five fields"},
		{"60 * * * *", "", "cron", "expected five fields"},
		{", * * * *", "", "cron", "names no minute"},
		{"0 0 30 2 *", "", "cron", "no day of any year"},
		{"@every 999ms", "", "cron", "1s to"},
		{"@every -1s", "", "cron", "1s to"},
		{"@every", "", "cron", "expected five fields"},
		{"@reboot", "", "cron", "expected five fields"},
		{"TZ=UTC 0 0 * * *", "", "cron", "time_zone"},
		{"TZ=0", "", "cron", "time_zone"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "cron", "at most 256"},
		{"@daily", "Mars/Base", "time_zone", "Europe/Berlin"},
		{"@daily", "Local", "time_zone", "Europe/Berlin"},
		{"@daily", "../../etc/passwd", "time_zone", "Europe/Berlin"},
	} {
		_, err := Parse(c.cron, c.zone)
		var e *freeslot.Error
		if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument || e.Field != c.field || !strings.HasPrefix(e.Message, c.field+" ") || !strings.Contains(e.Message, c.part) {
			t.Errorf("%q in %q: %v", c.cron, c.zone, err)
		}
	}
}

// fields is what a drawn expression means, for the twin.
type fields struct {
	minute, hour, dom, month, dow []int // nil is every
}

func drawField(t *rapid.T, name string, low, high int) (text string, values []int) {
	switch rapid.IntRange(0, 3).Draw(t, name) {
	case 0:
		return "*", nil
	case 1:
		step := rapid.IntRange(2, high).Draw(t, name+" step")
		for v := low; v <= high; v += step {
			values = append(values, v)
		}
		return fmt.Sprintf("*/%d", step), values
	default:
		var words []string
		for range rapid.IntRange(1, 3).Draw(t, name+"s") {
			v := rapid.IntRange(low, high).Draw(t, name+" value")
			words, values = append(words, fmt.Sprint(v)), append(values, v)
		}
		return strings.Join(words, ","), values
	}
}

func in(values []int, v int) bool { return values == nil || slices.Contains(values, v) }

// matches is for a clock on the wall, in UTC; star says whether one of the days' fields is a star.
func (f *fields) matches(wall time.Time, star bool) bool {
	dom, dow := in(f.dom, wall.Day()), in(f.dow, int(wall.Weekday()))
	day := dom || dow
	if star {
		day = dom && dow
	}
	return in(f.minute, wall.Minute()) && in(f.hour, wall.Hour()) && in(f.month, int(wall.Month())) && day
}

func wallOf(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// nextSlowly looks at each minute.
func (f *fields) nextSlowly(after time.Time, zone *time.Location, star bool, limit time.Time) time.Time {
	const lookBack = 26 * time.Hour
	for at := after.Truncate(time.Minute).Add(time.Minute); at.Before(limit); at = at.Add(time.Minute) {
		wall, before := wallOf(at, zone), wallOf(at.Add(-time.Minute), zone)
		if f.hour == nil {
			if f.matches(wall, star) {
				return at
			}
			continue
		}
		for skipped := before.Add(time.Minute); skipped.Before(wall); skipped = skipped.Add(time.Minute) {
			if f.matches(skipped, star) {
				return at
			}
		}
		if !f.matches(wall, star) {
			continue
		}
		shown := false // before
		_, offset := at.In(zone).Zone()
		if _, then := at.Add(-lookBack).In(zone).Zone(); then != offset {
			for earlier := at.Add(-time.Minute); earlier.After(at.Add(-lookBack)) && !shown; earlier = earlier.Add(-time.Minute) {
				shown = wallOf(earlier, zone).Equal(wall)
			}
		}
		if !shown {
			return at
		}
	}
	return time.Time{}
}

// TestNextAgainstTwin goes through the days around changes of the clocks minute by minute.
func TestNextAgainstTwin(t *testing.T) {
	t.Parallel()
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia"}
	rapid.Check(t, func(t *rapid.T) {
		var f fields
		var texts [5]string
		texts[0], f.minute = drawField(t, "minute", 0, 59)
		texts[1], f.hour = drawField(t, "hour", 0, 23)
		texts[2], f.dom = drawField(t, "day", 1, 31)
		texts[3], f.month = "*", nil
		texts[4], f.dow = drawField(t, "weekday", 0, 6)
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		e, err := Parse(strings.Join(texts[:], " "), zone)
		if err != nil {
			t.Fatal(err)
		}
		star := texts[2] == "*" || texts[4] == "*"
		location, _ := time.LoadLocation(zone)
		// Half of the times are shortly before a change.
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 365*24*3600).Draw(t, "at")) * time.Second)
		if _, end := at.In(location).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "near") {
			at = end.Add(-time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "before")) * time.Second)
		}
		limit := at.Add(4 * 24 * time.Hour)
		for range 6 {
			want, got := f.nextSlowly(at, location, star, limit), e.Next(at)
			if want.IsZero() {
				if !got.IsZero() && got.Before(limit) {
					t.Fatalf("%v in %q after %s: %s, expected none before %s", texts, zone, at, got, limit)
				}
				return
			}
			if !got.Equal(want) {
				t.Fatalf("%v in %q after %s: %s, expected %s", texts, zone, at, got, want)
			}
			at = got
		}
	})
}

// FuzzParse: no text does harm, and what is taken runs later than it is asked for.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "@every 1s", "@daily", "TZ=0", "0-59/7 */2 1,15 jan-mar mon", "? ? ? ? ?", "1-0 * * * *", "*/0 * * * *"} {
		f.Add(seed, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		e, err := Parse(expression, zone)
		if err != nil {
			if freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
				t.Fatal(err)
			}
			return
		}
		at := time.UnixMilli(1_700_000_000_000 + rand.Int64N(1e11))
		for range 3 {
			next := e.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q after %s: %s", expression, at, next)
			}
			at = next
		}
	})
}
