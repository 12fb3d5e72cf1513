package trace

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

	"github.com/freeslot/freeslot"
)

const (
	// maxTokens is beyond any context window and still far from overflowing a sum of them.
	maxTokens = 1 << 24
	maxGPU    = 1 << 10
	// stamp is how the trace writes its moments; it accepts any number of decimals.
	stamp = "2006-01-02 15:04:05"
)

// Request is one request of the Azure LLM inference trace.
type Request struct {
	// At is the time since the first request. It never goes back from one request to the next.
	At              time.Duration
	GeneratedTokens int
}

// OpenRequests reads a trace in the format of 2023: TIMESTAMP,ContextTokens,GeneratedTokens. It
// refuses a trace without requests, and one whose moments go back. Errors name the line.
func OpenRequests(path string) ([]Request, error) { return open(path, readRequests) }

// OpenNodes reads a node list: sn,cpu_milli,memory_mib,gpu,model. It refuses a list without nodes,
// and names that are invalid or come twice. Errors name the line.
func OpenNodes(path string) ([]Node, error) { return open(path, readNodes) }

func open[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := read(file)
	if err == nil && len(all) == 0 {
		err = errors.New("line 2 is missing: the file has a header alone")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func readRequests(r io.Reader) ([]Request, error) {
	var all []Request
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
		all = append(all, Request{At: at.Sub(first), GeneratedTokens: tokens})
		return err
	})
	return all, err
}

func readNodes(r io.Reader) ([]Node, error) {
	var all []Node
	seen := make(map[string]bool)
	err := readTable(r, "sn,cpu_milli,memory_mib,gpu,model", func(row []string) error {
		n := Node{ID: strings.Clone(row[0]), Model: strings.Clone(row[4])}
		if seen[n.ID] {
			return fmt.Errorf("sn %s comes twice", n.ID)
		}
		seen[n.ID] = true
		if err := freeslot.ValidateName("sn", n.ID); err != nil {
			return err
		}
		if n.Model != "" {
			if err := freeslot.ValidateName("model", n.Model); err != nil {
				return err
			}
		}
		var err error
		n.GPU, err = number("gpu", row[3], maxGPU)
		all = append(all, n)
		return err
	})
	return all, err
}

// readTable calls each with the fields of every line of a CSV file that begins with this header.
func readTable(r io.Reader, header string, each func(row []string) error) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	names := strings.Split(header, ",")
	row, err := in.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return err // which has the line
	}
	if !slices.Equal(row, names) {
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
