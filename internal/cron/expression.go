// Package cron reads expressions that say when something runs, and computes its runs.
package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a database of time zones

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
	// maxPeriods bounds how many periods between two changes of the clocks are searched for a run:
	// more than five years of four changes each.
	maxPeriods = 64
	// longestShown is how many bytes of an expression an error repeats.
	longestShown = 64
)

// Expression says when a schedule runs. It is immutable. Make it with Parse.
type Expression struct {
	every time.Duration // 0 where spec is set
	spec  *parser.SpecSchedule
	zone  *time.Location
	// hourly is true if every hour of the day matches.
	hourly bool
}

// Parse reads an expression in one of these forms:
//   - five fields as in crontab(5): minute, hour, day of month, month and day of week, in which
//     both 0 and 7 are Sunday
//   - @hourly, @daily, @weekly, @monthly or @yearly
//   - @every with a duration from a second to 366 days, such as 90s, 1h30m or 2d12h
//
// zone is a name of the IANA database; "" means UTC. Errors: *freeslot.Error (invalid_argument) for
// the field cron or time_zone.
func Parse(expression, zone string) (Expression, error) {
	location, err := loadZone(zone)
	if err != nil {
		return Expression{}, err
	}
	if len(expression) > MaxExpressionLength {
		return Expression{}, freeslot.Invalid(
			"cron", "has %d bytes, expected at most %d", len(expression), MaxExpressionLength,
		)
	}
	if text, ok := strings.CutPrefix(expression, everyPrefix); ok {
		every, err := parseEvery(text)
		return Expression{every: every, zone: location}, err
	}
	// The library also accepts a zone here, and panics if that is cut off.
	if strings.Contains(expression, "=") {
		return Expression{}, freeslot.Invalid("cron", "has a time zone, expected it in time_zone")
	}
	parsed, err := parser.ParseStandard(sundays(expression))
	spec, ok := parsed.(*parser.SpecSchedule)
	if err != nil || !ok {
		return Expression{}, freeslot.Invalid(
			"cron",
			`is %q, expected five fields such as "30 4 * * 1-5" (minute, hour, day of month, month, day of week), @daily or @every 10m: %v`,
			shown(expression), err,
		)
	}
	for name, bits := range map[string]uint64{
		"minute": spec.Minute, "hour": spec.Hour, "day of month": spec.Dom, "month": spec.Month, "day of week": spec.Dow,
	} {
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
	every, err := parseDays(text)
	if err != nil || every < MinEvery || every > MaxEvery {
		return 0, freeslot.Invalid("cron", "is %q, expected @every with a duration of 1s to 366d such as 90s, 1h30m or 7d",
			shown(everyPrefix+text))
	}
	return every.Truncate(time.Millisecond), nil
}

// parseDays reads a duration that may begin with whole days of 24 hours.
func parseDays(text string) (time.Duration, error) {
	number, rest, ok := strings.Cut(text, "d")
	days, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil {
		return time.ParseDuration(text)
	}
	every := time.Duration(days) * 24 * time.Hour
	if rest == "" {
		return every, nil
	}
	more, err := time.ParseDuration(rest)
	if more < 0 || strings.HasPrefix(rest, "+") {
		return 0, fmt.Errorf("%q has a sign behind its days", text)
	}
	return every + more, err
}

// sundays replaces a Sunday that ends a week, 7 or the "sun" of "fri-sun", by days that the library
// knows. It leaves everything that it cannot read for the library to refuse.
func sundays(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) != 5 {
		return expression
	}
	var days []string
	for part := range strings.SplitSeq(fields[4], ",") {
		days = append(days, weekdays(part)...)
	}
	fields[4] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// weekdays returns the days of "7", "a-7" or "a-7/step", one by one, and any other part as it is.
func weekdays(part string) []string {
	text, stepText, stepped := strings.Cut(part, "/")
	first, last, isRange := strings.Cut(text, "-")
	from, ok := weekday(first)
	step, err := uint64(1), error(nil)
	if stepped {
		step, err = strconv.ParseUint(stepText, 10, 8)
	}
	endsWeek := first == "7"
	if isRange {
		endsWeek = last == "7" || strings.EqualFold(last, "sun") && from > 0
	}
	if !ok || !endsWeek || err != nil || step == 0 || stepped && !isRange {
		return []string{part}
	}
	var days []string
	for day := from; day <= 7; day += step {
		days = append(days, strconv.FormatUint(day%7, 10))
	}
	return days
}

// weekday returns the number of a day of the week, 0 to 7.
func weekday(text string) (day uint64, ok bool) {
	for i, name := range []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} {
		if strings.EqualFold(text, name) {
			return uint64(i), true
		}
	}
	day, err := strconv.ParseUint(text, 10, 8)
	return day, err == nil && day <= 7
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

func shown(text string) string { return strings.ToValidUTF8(text[:min(len(text), longestShown)], "") }

// Every returns the pause of an @every expression; 0 for any other.
func (e *Expression) Every() time.Duration { return e.every }

// Next returns the first run after a time. It is on a whole second, except for @every, which counts
// from after. It is zero if there is no run in the next years.
//
// When the clocks change, an expression whose hour field names every hour ("*", "*/1") follows the
// passing of time. It runs in both hours of the same name, and not in an hour that is left out. All
// other expressions follow the clock on the wall. A time that comes twice runs the first time. A
// time that is left out runs at the moment of the change. Runs that fall on one moment are one run.
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

// within returns the first run after at in the period from start to end. A zero start or end leaves
// the period open there. In it local time is offset seconds ahead of UTC.
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

// repeated reports whether the clock on the wall showed this time already before it was put back at
// start.
func (e *Expression) repeated(at, start time.Time, offset int) bool {
	if start.IsZero() {
		return false
	}
	_, before := start.Add(-time.Second).In(e.zone).Zone()
	return shift(at, offset).Before(shift(start, before))
}

// leftOut reports whether there is a run among the times that are left out when the clock on the
// wall is put forward.
func (e *Expression) leftOut(moment time.Time, before, after int) bool {
	if e.hourly || after <= before {
		return false
	}
	next := e.spec.Next(shift(moment, before).Add(-time.Second))
	return !next.IsZero() && next.Before(shift(moment, after))
}

// shift returns a time in UTC that reads like a clock which is this many seconds ahead.
func shift(t time.Time, seconds int) time.Time {
	return t.UTC().Add(time.Duration(seconds) * time.Second)
}

// NextMS is Next in milliseconds since the Unix epoch; 0 means none.
func (e *Expression) NextMS(after int64) int64 {
	next := e.Next(time.UnixMilli(after))
	if next.IsZero() {
		return 0
	}
	return next.UnixMilli()
}
