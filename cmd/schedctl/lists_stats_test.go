package main

import (
	"testing"
	"time"
)

func TestSpark(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 3, 1, 12, 0, 30, 0, time.UTC).UnixMilli()
	var points []sparkPoint
	for ago, lookups := range map[int64]uint64{0: 8, 1: 1, 2: 4, 4: 3, 9: 7, 1000: 99} {
		points = append(points, sparkPoint{at - 30_000 - ago*60_000, lookups})
	}
	for _, c := range []struct {
		since time.Duration
		want  string
		most  uint64
		width time.Duration
	}{
		{5 * time.Minute, "▃ ▄▁█", 8, time.Minute},
		{10 * time.Minute, "▇    ▃ ▄▁█", 8, time.Minute},
		{time.Minute, "█", 8, time.Minute},
		{90 * time.Second, "▁█", 8, time.Minute},
	} {
		if got, most, width := spark(points, at, 60_000, c.since); got != c.want || most != c.most || width != c.width {
			t.Errorf("%s: %q, at most %d, %s; want %q, %d, %s", c.since, got, most, width, c.want, c.most, c.width)
		}
	}
	if got, most, width := spark(points, at, 60_000, 2*time.Hour); len([]rune(got)) != 60 || width != 2*time.Minute || most != 9 {
		t.Errorf("two hours: %q, at most %d, %s; want 60 columns of 2m0s, at most 9", got, most, width)
	}
	if got, most, _ := spark(nil, at, 60_000, 3*time.Minute); got != "   " || most != 0 {
		t.Errorf("without lookups: %q, at most %d; want spaces and 0", got, most)
	}
}
