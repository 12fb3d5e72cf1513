package faults

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// memoryGrowth is the largest accepted ratio of the mean of the last quarter to the mean of the
	// second.
	memoryGrowth = 1.1
	// goroutineSlack is how many more goroutines there may be in the median of the last quarter.
	goroutineSlack = 8
	// burstSlack is how many more a single sample of the last quarter may find: the requests that a
	// session may have under way. There can be that many if the machine stood still for a moment.
	burstSlack = 64
	// fewestSamples is the number of samples that a quarter needs for a verdict.
	fewestSamples = 10
	// goroutines begins the names of series that count them; all other series are of memory or of
	// what fills it.
	goroutines = "goroutines "
)

// Sample holds the measurements at one time of a soak, by the name of the series.
type Sample struct {
	At     time.Duration
	Values map[string]float64
}

// Growth compares the second quarter of a series with the last: the means, and for goroutines the
// medians and the highest values. A series that grew by more than Limit allows has grown.
type Growth struct {
	Series string  `json:"series"`
	Second float64 `json:"second_quarter"`
	Last   float64 `json:"last_quarter"`
	// Limit is the largest accepted Last.
	Limit float64 `json:"limit"`
	// Highest is the highest value of the last quarter, for goroutines, and HighestLimit the
	// largest accepted one.
	Highest      float64 `json:"highest,omitempty"`
	HighestLimit float64 `json:"highest_limit,omitempty"`
	// Samples is the number of samples in the quarter that has fewer.
	Samples int  `json:"samples"`
	Grew    bool `json:"grew"`
}

// String returns the comparison in words.
func (g Growth) String() string {
	word := "steady"
	switch {
	case g.Samples < fewestSamples:
		word = fmt.Sprintf("UNKNOWN, %d samples a quarter", g.Samples)
	case g.Grew:
		word = "GREW"
	}
	highest := ""
	if g.HighestLimit > 0 {
		highest = fmt.Sprintf("; highest %.0f, at most %.0f", g.Highest, g.HighestLimit)
	}
	return fmt.Sprintf("%-24s second quarter %12.0f, last quarter %12.0f, at most %12.0f%s: %s", g.Series, g.Second, g.Last, g.Limit, highest, word)
}

// Judge compares the quarters of each series of a soak of this length, which begins at 0. A series
// with too few samples counts as grown: it proves nothing.
func Judge(samples []Sample, length time.Duration) []Growth {
	second, last := map[string][]float64{}, map[string][]float64{}
	names := map[string]bool{}
	for _, s := range samples {
		for name, value := range s.Values {
			names[name] = true
			switch quarter := s.At * 4 / length; quarter {
			case 1:
				second[name] = append(second[name], value)
			case 3:
				last[name] = append(last[name], value)
			}
		}
	}
	var all []Growth
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, judgeOne(name, second[name], last[name]))
	}
	return all
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func judgeOne(name string, second, last []float64) Growth {
	g := Growth{Series: name, Samples: min(len(second), len(last))}
	if g.Samples < fewestSamples {
		g.Grew = true
		return g
	}
	if strings.HasPrefix(name, goroutines) {
		g.Second, g.Last = median(second), median(last)
		g.Limit = g.Second + goroutineSlack
		g.Highest, g.HighestLimit = slices.Max(last), slices.Max(second)+burstSlack
	} else {
		g.Second, g.Last = mean(second), mean(last)
		g.Limit = g.Second * memoryGrowth
	}
	g.Grew = g.Last > g.Limit || g.Highest > g.HighestLimit
	return g
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// WriteSamples writes samples as CSV, one a line: the seconds since the beginning, then each
// series. If a series has no value, the field is empty.
func WriteSamples(w io.Writer, samples []Sample) error {
	names := map[string]bool{}
	for _, s := range samples {
		for name := range s.Values {
			names[name] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	out := csv.NewWriter(w)
	if err := out.Write(append([]string{"seconds"}, columns...)); err != nil {
		return err
	}
	for _, s := range samples {
		line := []string{strconv.FormatFloat(s.At.Seconds(), 'f', 1, 64)}
		for _, name := range columns {
			text := ""
			if value, ok := s.Values[name]; ok {
				text = strconv.FormatFloat(value, 'f', -1, 64)
			}
			line = append(line, text)
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
