package cron

import (
	"testing"
	"time"
)

// TestSundays: in the days of the week 7 is Sunday, as in crontab(5), in lists, ranges and steps.
func TestSundays(t *testing.T) {
	t.Parallel()
	sunday := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for days, want := range map[string]string{ // from Sunday to Saturday
		"7": "x......", "0": "x......", "sun": "x......", "0,7": "x......", "1,7": "xx.....", "7,3": "x..x...",
		"5-7": "x....xx", "1-7": "xxxxxxx", "0-7": "xxxxxxx", "7-7": "x......", "1-7/2": "xx.x.x.", "0-7/7": "x......",
		"fri-sun": "x....xx", "FRI-7": "x....xx", "5-sun": "x....xx", "*/7": "x......", "1-5": ".xxxxx.", "2-7/3": "..x..x.",
	} {
		e, err := Parse("0 0 * * "+days, "")
		if err != nil {
			t.Errorf("%q is refused: %v, expected the days %s", days, err, want)
			continue
		}
		got := []byte(".......")
		for day := range 7 {
			midnight := sunday.AddDate(0, 0, day)
			if e.Next(midnight.Add(-time.Second)).Equal(midnight) {
				got[day] = 'x'
			}
		}
		if string(got) != want {
			t.Errorf("%q has the days %s, expected %s", days, got, want)
		}
	}
	for _, days := range []string{"8", "7-1", "7-8", "1-7/0", "7/2", "-7", "7-", "77", "sun-7x", "1-7/x"} {
		if _, err := Parse("0 0 * * "+days, ""); err == nil {
			t.Errorf("%q is accepted, expected a refusal", days)
		}
	}
}

// TestEveryDays: @every takes whole days of 24 hours, up to the 366 that its refusal names.
func TestEveryDays(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "366d": 366 * day, "2d12h": 60 * time.Hour, "1d90s": day + 90*time.Second, "0d1s": time.Second, "8784h": 366 * day, "90s": 90 * time.Second,
	} {
		if e, err := Parse("@every "+text, ""); err != nil || e.every != want {
			t.Errorf("@every %s is every %v and %v, expected every %v", text, e.every, err, want)
		}
	}
	for _, text := range []string{"367d", "366d1s", "0d", "d", "-1d", "1d-1h", "1d+1h", "1dd", "1.5d", "1h1d", "99999d", "1d1", "1e2d"} {
		if _, err := Parse("@every "+text, ""); err == nil {
			t.Errorf("@every %s is accepted, expected a refusal", text)
		}
	}
}
