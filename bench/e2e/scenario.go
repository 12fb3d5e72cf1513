package main

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

// loop is how a scenario decides when to submit.
type loop string

const (
	// closed: a fixed number of jobs is in flight; the next is submitted when one has ended.
	closed loop = "closed"
	// open: jobs are due at a fixed rate, whatever became of those before.
	open loop = "open"
)

// scenario is one load.
type scenario struct {
	Loop loop `json:"loop"`
	// Concurrency is the number of jobs in flight; in an open loop 0.
	Concurrency int `json:"concurrency,omitempty"`
	// Batch is the number of jobs of one frame; 1 is a single submit.
	Batch int `json:"batch"`
	// Rate is jobs per second; in a closed loop 0.
	Rate int `json:"rate_per_second,omitempty"`
}

// defaultScenarios are, in this order: the floor of latency, single frames, batches, and two rates.
func defaultScenarios() []scenario {
	return []scenario{
		{Loop: closed, Concurrency: 1, Batch: 1},
		{Loop: closed, Concurrency: 64, Batch: 1},
		{Loop: closed, Concurrency: 1024, Batch: 64},
		{Loop: open, Rate: 500, Batch: 1},
		{Loop: open, Rate: 2000, Batch: 1},
	}
}

// parseScenario reads "closed:64", "closed:1024/64" (in batches of 64) or "open:2000" (jobs per second).
func parseScenario(text string) (scenario, error) {
	s, err := readScenario(text)
	if err != nil {
		return s, fmt.Errorf("scenario %q: %w; examples: closed:64, closed:1024/64 (64 jobs a frame), open:2000 (jobs per second)", text, err)
	}
	return s, nil
}

func readScenario(text string) (scenario, error) {
	name, figures, _ := strings.Cut(text, ":")
	first, second, batched := strings.Cut(figures, "/")
	n, err := strconv.Atoi(first)
	if err != nil {
		return scenario{}, fmt.Errorf("%q is not a whole number", first)
	}
	s := scenario{Loop: loop(name), Batch: 1}
	switch s.Loop {
	case closed:
		s.Concurrency = n
	case open:
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

func (s scenario) validate() error {
	switch {
	case s.Loop == closed && (s.Concurrency < 1 || s.Concurrency > maxConcurrency):
		return fmt.Errorf("%d jobs in flight, expected 1 to %d", s.Concurrency, maxConcurrency)
	case s.Loop == open && (s.Rate < 1 || s.Rate > maxRate):
		return fmt.Errorf("%d jobs per second, expected 1 to %d", s.Rate, maxRate)
	case s.Loop == open && s.Batch != 1:
		return errors.New("an open loop submits one job a frame, when it is due")
	case s.Batch < 1 || s.Batch > maxBatch:
		return fmt.Errorf("%d jobs a frame, expected 1 to %d", s.Batch, maxBatch)
	case s.Loop == closed && s.Concurrency%s.Batch != 0:
		return fmt.Errorf("%d jobs in flight cannot be submitted by %d", s.Concurrency, s.Batch)
	}
	return nil
}

// String is what parseScenario reads.
func (s scenario) String() string {
	switch {
	case s.Loop == open:
		return fmt.Sprintf("%s:%d", open, s.Rate)
	case s.Batch > 1:
		return fmt.Sprintf("%s:%d/%d", closed, s.Concurrency, s.Batch)
	default:
		return fmt.Sprintf("%s:%d", closed, s.Concurrency)
	}
}

// words is the scenario for readers.
func (s scenario) words() string {
	switch {
	case s.Loop == open:
		return fmt.Sprintf("%d jobs/s due, single frames", s.Rate)
	case s.Batch > 1:
		return fmt.Sprintf("%d in flight, %d a frame", s.Concurrency, s.Batch)
	default:
		return fmt.Sprintf("%d in flight, single frames", s.Concurrency)
	}
}
