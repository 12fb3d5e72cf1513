package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // so that zones are known on machines without a database of their own

	parser "github.com/robfig/cron/v3"

	"github.com/freeslot/freeslot"
)

// Bounds of @every.
const (
	MinEvery = time.Second
	MaxEvery = 366 * 24 * time.Hour
)

// MaxExpressionLength is the longest expression, in bytes.
const MaxExpressionLength = 256

const (
	everyPrefix = "@every "
	allHours    = 1<<24 - 1
	// maxPeriods is how many periods between two changes of the clocks are looked at for
	// a run: five years of four changes each, and more.
	maxPeriods = 64
	// longestShown is how much of an expression a refusal repeats.
	longestShown = 64
)

// Expression says when a schedule runs. It is immutable. Make it with Parse.
type Expression struct {
	every time.Duration // 0 where spec is set
	spec  *parser.SpecSchedule
	zone  *time.Location
	// hourly is true where every hour of the day matches.
	hourly bool
}

// Parse reads five fields (minute, hour, day of month, month, day of week), one of
// @hourly, @daily, @weekly, @monthly and @yearly, or @every with a duration of at least a
// second. zone is a name of the IANA database, "" for UTC. Errors: *freeslot.Error
// (invalid_argument, of the fields cron or time_zone).
func Parse(expression, zone string) (Expression, error) {
	location, err := loadZone(zone)
	if err != nil {
		return Expression{}, err
	}
	if len(expression) > MaxExpressionLength {
		return Expression{}, freeslot.Invalid("cron", "has %d bytes, expected at most %d", len(expression), MaxExpressionLength)
	}
	if text, ok := strings.CutPrefix(expression, everyPrefix); ok {
		every, err := parseEvery(text)
		return Expression{every: every, zone: location}, err
	}
	// The library takes a zone here, too, and ends in a panic where it is cut off.
	if strings.Contains(expression, "=") {
		return Expression{}, freeslot.Invalid("cron", "has a time zone, expected it in time_zone")
	}
	parsed, err := parser.ParseStandard(expression)
	spec, ok := parsed.(*parser.SpecSchedule)
	if err != nil || !ok {
		return Expression{}, freeslot.Invalid("cron", `is %q, expected five fields such as "30 4 * * 1-5" (minute, hour, day of month, month, day of week), @daily or @every 10m: %v`, shown(expression), err)
	}
	for name, bits := range map[string]uint64{"minute": spec.Minute, "hour": spec.Hour, "day of month": spec.Dom, "month": spec.Month, "day of week": spec.Dow} {
		if bits == 0 {
			return Expression{}, freeslot.Invalid("cron", "is %q, which names no %s", shown(expression), name)
		}
	}
	spec.Location = time.UTC
	e := Expression{spec: spec, zone: location, hourly: spec.Hour&allHours == allHours}
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return Expression{}, freeslot.Invalid("cron", "is %q, which is no day of any year", shown(expression))
	}
	return e, nil
}

func parseEvery(text string) (time.Duration, error) {
	every, err := time.ParseDuration(text)
	if err != nil || every < MinEvery || every > MaxEvery {
		return 0, freeslot.Invalid("cron", "is %q, expected @every with a duration of %s to %s such as 90s or 1h30m", shown(everyPrefix+text), MinEvery, MaxEvery)
	}
	return every.Truncate(time.Millisecond), nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "Local" || len(name) > freeslot.MaxNameLength {
		return nil, freeslot.Invalid("time_zone", "is %q, expected a name such as Europe/Berlin", shown(name))
	}
	zone, err := time.LoadLocation(name) // "" is UTC
	if err != nil {
		return nil, freeslot.Invalid("time_zone", "is %q, expected a name such as Europe/Berlin", shown(name))
	}
	return zone, nil
}

func shown(text string) string { return text[:min(len(text), longestShown)] }

// Next is the first run after a time, on a whole second but for @every, which counts from
// after. It is zero where there is none in the next years.
//
// Where the clocks change: an expression whose hour field names every hour ("*", "*/1")
// goes by time as it passes, and so runs in each of two hours of one name, and not in one
// that is left out. All others go by the clock on the wall: a time that comes twice is
// run the first time, one that is left out at the moment when the clocks are changed. Runs
// that fall on one moment are one.
func (e *Expression) Next(after time.Time) time.Time {
	if e.every > 0 {
		return after.Add(e.every)
	}
	at := after.Truncate(time.Second)
	period := at
	for range maxPeriods {
		local := period.In(e.zone)
		start, end := local.ZoneBounds()
		_, offset := local.Zone()
		if next, ok := e.within(at, start, end, offset); ok {
			return next.UTC()
		}
		if end.IsZero() {
			break
		}
		if _, then := end.Zone(); e.leftOut(end, offset, then) {
			return end.UTC()
		}
		at, period = end.Add(-time.Second), end
	}
	return time.Time{}
}

// within is the first run after at in the period from start to end, both zero where it has
// none, in which local time is that much ahead of UTC, in seconds.
func (e *Expression) within(at, start, end time.Time, offset int) (next time.Time, ok bool) {
	wall := shift(at, offset)
	for {
		if wall = e.spec.Next(wall); wall.IsZero() {
			return wall, false
		}
		next = shift(wall, -offset)
		if !end.IsZero() && !next.Before(end) {
			return next, false
		}
		if e.hourly || !e.repeated(next, start, offset) {
			return next, true
		}
	}
}

// repeated reports whether the clock on the wall showed this time before it was put back
// at start.
func (e *Expression) repeated(at, start time.Time, offset int) bool {
	if start.IsZero() {
		return false
	}
	_, before := start.Add(-time.Second).In(e.zone).Zone()
	return shift(at, offset).Before(shift(start, before))
}

// leftOut reports whether there is a run among the times that the clock on the wall leaves
// out when it is put forward.
func (e *Expression) leftOut(moment time.Time, before, after int) bool {
	if e.hourly || after <= before {
		return false
	}
	next := e.spec.Next(shift(moment, before).Add(-time.Second))
	return !next.IsZero() && next.Before(shift(moment, after))
}

// shift is UTC that shows what a clock shows that is so many seconds ahead.
func shift(t time.Time, seconds int) time.Time {
	return t.UTC().Add(time.Duration(seconds) * time.Second)
}

// NextMS is Next in milliseconds since the Unix epoch; 0 is none.
func (e *Expression) NextMS(after int64) int64 {
	next := e.Next(time.UnixMilli(after))
	if next.IsZero() {
		return 0
	}
	return next.UnixMilli()
}
