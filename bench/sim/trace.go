package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxTokens is beyond any context window and still far from overflowing a sum of them.
	maxTokens = 1 << 24
	maxGPUs   = 1 << 10
	// stamp is how the trace writes its moments; it accepts any number of decimals.
	stamp = "2006-01-02 15:04:05"
)

// request is one request of the Azure LLM inference trace.
type request struct {
	// at is the time since the first request. It never goes back from one request to the next.
	at time.Duration
	// tokens are those that were generated. None counts as one: no job takes no time.
	tokens int
}

// openRequests reads a trace in the format of 2023. It refuses a trace without requests, and one
// whose moments go back. Errors name the line.
func openRequests(path string) ([]request, error) { return open(path, readRequests) }

// openNodes reads the node list of the Alibaba GPU trace of 2023 and returns the slots of each
// node: one a GPU. It leaves out nodes without a GPU, which are for other work. Errors name the
// line.
func openNodes(path string) ([]int, error) { return open(path, readNodes) }

func open[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := read(file)
	if err == nil && len(all) == 0 {
		err = errors.New("no line after the header can be used")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func readRequests(r io.Reader) ([]request, error) {
	var all []request
	var first, last time.Time
	err := readTable(r, "TIMESTAMP,ContextTokens,GeneratedTokens", func(row []string) error {
		at, err := time.Parse(stamp, row[0])
		switch {
		case err != nil:
			return fmt.Errorf("TIMESTAMP is %q, expected a moment such as 2023-11-16 18:15:46.6805900", row[0])
		case at.Before(last):
			return errors.New("TIMESTAMP is before that of the line above")
		case all == nil:
			first = at
		}
		last = at
		tokens, err := number("GeneratedTokens", row[2], maxTokens)
		all = append(all, request{at.Sub(first), max(tokens, 1)})
		return err
	})
	return all, err
}

func readNodes(r io.Reader) ([]int, error) {
	var slots []int
	err := readTable(r, "sn,cpu_milli,memory_mib,gpu,model", func(row []string) error {
		n, err := number("gpu", row[3], maxGPUs)
		if n > 0 {
			slots = append(slots, n)
		}
		return err
	})
	return slots, err
}

// readTable calls each with the fields of every line of a CSV file that begins with this header.
func readTable(r io.Reader, header string, each func(row []string) error) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	row, err := in.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return err // which has the line
	}
	if !slices.Equal(row, strings.Split(header, ",")) {
		return fmt.Errorf("line 1 is %q, expected the header %s", strings.Join(row, ","), header)
	}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err // which has the line
		}
		if err := each(row); err != nil {
			line, _ := in.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// number reads a whole number from 0 to high.
func number(name, text string, high int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > high {
		return 0, fmt.Errorf("%s is %q, expected a whole number from 0 to %d", name, text, high)
	}
	return n, nil
}

// fleetOf is count nodes with the list's mix of sizes; 0 is the list. A smaller fleet takes nodes
// at even distances in the list, which is sorted by kind. A larger one takes the whole list as
// often as it fits, and the rest at even distances.
func fleetOf(list []int, count int) []int {
	if count == 0 {
		count = len(list)
	}
	all := make([]int, 0, count)
	for len(all) < count {
		take := min(count-len(all), len(list))
		for i := range take {
			all = append(all, list[i*len(list)/take])
		}
	}
	return all
}
