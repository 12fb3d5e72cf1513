package result

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a scenario.
const (
	maxConcurrency = 10_000
	maxBatch       = 1_000
	maxRate        = 200_000
)

// Loop is how a scenario decides when to submit.
type Loop string

const (
	// Closed keeps a fixed number of jobs in flight; the next is submitted when one has ended.
	Closed Loop = "closed"
	// Open makes jobs due at a fixed rate, whatever became of those before.
	Open Loop = "open"
)

// Scenario is one load.
type Scenario struct {
	Loop Loop `json:"loop"`
	// Concurrency is the number of jobs in flight; in an open loop 0.
	Concurrency int `json:"concurrency,omitempty"`
	// Batch is the number of jobs of one frame; 1 is a single submit.
	Batch int `json:"batch"`
	// Rate is jobs per second; in a closed loop 0.
	Rate int `json:"rate_per_second,omitempty"`
}

// DefaultScenarios are, in this order: the floor of latency, single frames, batches, and two rates.
func DefaultScenarios() []Scenario {
	return []Scenario{
		{Loop: Closed, Concurrency: 1, Batch: 1},
		{Loop: Closed, Concurrency: 64, Batch: 1},
		{Loop: Closed, Concurrency: 1024, Batch: 64},
		{Loop: Open, Rate: 500, Batch: 1},
		{Loop: Open, Rate: 2000, Batch: 1},
	}
}

// ParseScenario reads "closed:64", "closed:1024/64" (in batches of 64) or "open:2000" (jobs per second).
func ParseScenario(text string) (Scenario, error) {
	s, err := readScenario(text)
	if err != nil {
		return s, fmt.Errorf("scenario %q: %w; examples: closed:64, closed:1024/64 (64 jobs a frame), open:2000 (jobs per second)", text, err)
	}
	return s, nil
}

func readScenario(text string) (Scenario, error) {
	name, figures, _ := strings.Cut(text, ":")
	first, second, batched := strings.Cut(figures, "/")
	n, err := strconv.Atoi(first)
	if err != nil {
		return Scenario{}, fmt.Errorf("%q is not a whole number", first)
	}
	s := Scenario{Loop: Loop(name), Batch: 1}
	switch s.Loop {
	case Closed:
		s.Concurrency = n
	case Open:
		s.Rate = n
	default:
		return s, fmt.Errorf("%q is not a loop", name)
	}
	if batched {
		if s.Batch, err = strconv.Atoi(second); err != nil {
			return s, fmt.Errorf("%q is not a whole number", second)
		}
	}
	return s, s.validate()
}

func (s Scenario) validate() error {
	switch {
	case s.Loop == Closed && (s.Concurrency < 1 || s.Concurrency > maxConcurrency):
		return fmt.Errorf("%d jobs in flight, expected 1 to %d", s.Concurrency, maxConcurrency)
	case s.Loop == Open && (s.Rate < 1 || s.Rate > maxRate):
		return fmt.Errorf("%d jobs per second, expected 1 to %d", s.Rate, maxRate)
	case s.Loop == Open && s.Batch != 1:
		return errors.New("an open loop submits one job a frame, when it is due")
	case s.Batch < 1 || s.Batch > maxBatch:
		return fmt.Errorf("%d jobs a frame, expected 1 to %d", s.Batch, maxBatch)
	case s.Loop == Closed && s.Concurrency%s.Batch != 0:
		return fmt.Errorf("%d jobs in flight cannot be submitted by %d", s.Concurrency, s.Batch)
	}
	return nil
}

// String is what ParseScenario reads.
func (s Scenario) String() string {
	switch {
	case s.Loop == Open:
		return fmt.Sprintf("%s:%d", Open, s.Rate)
	case s.Batch > 1:
		return fmt.Sprintf("%s:%d/%d", Closed, s.Concurrency, s.Batch)
	default:
		return fmt.Sprintf("%s:%d", Closed, s.Concurrency)
	}
}

// Words is the scenario for readers.
func (s Scenario) Words() string {
	switch {
	case s.Loop == Open:
		return fmt.Sprintf("%d jobs/s due, single frames", s.Rate)
	case s.Batch > 1:
		return fmt.Sprintf("%d in flight, %d a frame", s.Concurrency, s.Batch)
	default:
		return fmt.Sprintf("%d in flight, single frames", s.Concurrency)
	}
}
