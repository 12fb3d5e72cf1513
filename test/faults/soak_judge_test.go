package faults

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// drawn is a soak of four minutes with a sample a second.
func drawn(series map[string]func(second float64) float64) []Sample {
	samples := make([]Sample, 240)
	for i := range samples {
		samples[i] = Sample{At: time.Duration(i) * time.Second, Values: map[string]float64{}}
		for name, f := range series {
			samples[i].Values[name] = f(float64(i))
		}
	}
	return samples
}

// burst is by how much the sample at 200 s is higher.
func burst(second, by float64) float64 {
	if second == 200 {
		return by
	}
	return 0
}

// TestJudge: what leaks is found, and what warms up, swings or shrinks is not taken for a leak.
func TestJudge(t *testing.T) {
	t.Parallel()
	const mb = 1e6
	cases := map[string]struct {
		series string
		value  func(second float64) float64
		grew   bool
	}{
		"level":                         {"rss r1", func(float64) float64 { return 30 * mb }, false},
		"warms up in the first quarter": {"rss r1", func(s float64) float64 { return mb * (10 + min(s, 59)) }, false},
		"swings":                        {"used_memory redis", func(s float64) float64 { return mb * (3 + math.Sin(s/3)) }, false},
		"shrinks":                       {"rss n1", func(s float64) float64 { return mb * (40 - s/20) }, false},
		"leaks slowly":                  {"rss r1", func(s float64) float64 { return mb * (30 + s/30) }, true},
		"leaks from the middle on":      {"keys redis", func(s float64) float64 { return 1000 + 2*max(0, s-120) }, true},
		"more goroutines for a moment":  {"goroutines r1", func(s float64) float64 { return 50 + 15*math.Mod(s, 7)/6 }, false},
		"one sample meets a burst":      {"goroutines r1", func(s float64) float64 { return 50 + burst(s, 40) }, false},
		"a burst without bound":         {"goroutines r1", func(s float64) float64 { return 50 + burst(s, 100) }, true},
		"ten goroutines that stay":      {"goroutines r1", func(s float64) float64 { return 50 + 10*math.Floor(s/120) }, true},
		"a goroutine a second":          {"goroutines r1", func(s float64) float64 { return 50 + s }, true},
		"a goroutine in six seconds":    {"goroutines n1", func(s float64) float64 { return 40 + s/5 }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := Judge(drawn(map[string]func(float64) float64{c.series: c.value, "rss other": func(float64) float64 { return mb }}), 240*time.Second)
			if len(all) != 2 {
				t.Fatalf("%d series judged, expected 2: %v", len(all), all)
			}
			for _, g := range all {
				if want := c.grew && g.Series == c.series; g.Grew != want {
					t.Errorf("%s; expected grown to be %t", g, want)
				}
			}
		})
	}
}

// TestJudgeNothing: a series that was not measured in one of the quarters is no pass.
func TestJudgeNothing(t *testing.T) {
	t.Parallel()
	samples := drawn(map[string]func(float64) float64{"rss r1": func(float64) float64 { return 1 }})
	for i := range samples {
		if samples[i].At > 185*time.Second {
			delete(samples[i].Values, "rss r1")
		}
	}
	all := Judge(samples, 240*time.Second)
	if len(all) != 1 || !all[0].Grew || !strings.Contains(all[0].String(), "UNKNOWN") {
		t.Errorf("judged %v, expected one series of which nothing is known", all)
	}
}

func TestWriteSamples(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := WriteSamples(&out, []Sample{
		{At: 0, Values: map[string]float64{"b": 1}}, {At: 1500 * time.Millisecond, Values: map[string]float64{"a": 2.5, "b": 3e7}},
	})
	want := []string{"seconds,a,b", "0.0,,1", "1.5,2.5,30000000", ""}
	if got := strings.Split(out.String(), "\n"); err != nil || !slices.Equal(got, want) {
		t.Errorf("wrote %q (%v), expected %q", got, err, want)
	}
}
