package chain

import (
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a database of time zones

	"github.com/freeslot/freeslot"
)

// weekdays are the names of days, in the order of time.Weekday.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// window is a compiled window.
type window struct {
	from, to time.Time // zero means open
	days     uint8     // a bit for each time.Weekday; 0 means all
	zone     *time.Location
}

func (w *window) has(now time.Time) bool {
	if !w.from.IsZero() && now.Before(w.from) || !w.to.IsZero() && !now.Before(w.to) {
		return false
	}
	return w.days == 0 || w.days&(1<<now.In(w.zone).Weekday()) != 0
}

// compileWindow compiles a window, and brings its fields into canonical form.
func compileWindow(r *Rule, path string, found *freeslot.FieldErrors) (w window) {
	w.from = moment(&r.From, path+".from", found)
	w.to = moment(&r.To, path+".to", found)
	if !w.from.IsZero() && !w.to.IsZero() && !w.from.Before(w.to) {
		found.Addf(path+".to", "is %s, expected a time after from", r.To)
	}
	for i, day := range r.Weekdays {
		at := slices.Index(weekdays, strings.ToLower(day))
		if at < 0 {
			found.Addf(element(path+".weekdays", i), "is %.64q, expected mon, tue, wed, thu, fri, sat or sun", day)
			continue
		}
		w.days |= 1 << at
	}
	r.Weekdays = nil
	for i := range weekdays {
		at := (i + 1) % len(weekdays) // from Monday
		if w.days&(1<<at) != 0 {
			r.Weekdays = append(r.Weekdays, weekdays[at])
		}
	}
	if r.From == "" && r.To == "" && len(r.Weekdays) == 0 {
		found.Addf(path+".from", "is missing, expected from, to or weekdays")
	}
	zone, err := time.LoadLocation(r.TimeZone) // "" is UTC
	if err != nil || r.TimeZone == "Local" {
		found.Addf(path+".time_zone", "is %.64q, expected a name of the IANA database such as Europe/Berlin", r.TimeZone)
		zone = time.UTC
	}
	w.zone = zone
	return w
}

func moment(text *string, field string, found *freeslot.FieldErrors) time.Time {
	if *text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, *text)
	if err != nil {
		found.Addf(field, "is %.64q, expected a time of RFC 3339 such as 2027-01-31T12:00:00Z", *text)
		return time.Time{}
	}
	*text = at.UTC().Format(time.RFC3339Nano)
	return at
}
