package trace

import (
	"fmt"
	"io"
	"os"
	"time"
)

// maxTokens is beyond any context window and still far from overflowing a sum of them.
const maxTokens = 1 << 24

// stamp is how the trace writes its moments; it accepts any number of decimals.
const stamp = "2006-01-02 15:04:05"

// Request is one request of the Azure LLM inference trace.
type Request struct {
	// At is the time since the first request. It never goes back from one request to the next.
	At              time.Duration
	ContextTokens   int
	GeneratedTokens int
}

// ReadRequests reads a trace in the format of 2023: TIMESTAMP,ContextTokens,GeneratedTokens. It refuses a
// trace without requests, and one whose moments go back. The error is an *Error unless r failed.
func ReadRequests(r io.Reader) ([]Request, error) {
	t, err := newTable(r, "TIMESTAMP", "ContextTokens", "GeneratedTokens")
	if err != nil {
		return nil, err
	}
	var first, last time.Time
	var all []Request
	for {
		more, err := t.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		at, err := time.Parse(stamp, t.row[0])
		if err != nil {
			return nil, t.fail(0, "is %q, expected a moment such as 2023-11-16 18:15:46.6805900", t.row[0])
		}
		if len(all) == 0 {
			first, last = at, at
		}
		if at.Before(last) {
			return nil, t.fail(0, "is before the line above")
		}
		last = at
		request := Request{At: at.Sub(first)}
		if request.ContextTokens, err = t.number(1, 0, maxTokens); err != nil {
			return nil, err
		}
		if request.GeneratedTokens, err = t.number(2, 0, maxTokens); err != nil {
			return nil, err
		}
		all = append(all, request)
	}
	if len(all) == 0 {
		return nil, &Error{Line: 2, Message: "is missing, expected a request"}
	}
	return all, nil
}

// OpenRequests is ReadRequests of a file.
func OpenRequests(path string) ([]Request, error) { return open(path, ReadRequests) }

func open[T any](path string, read func(io.Reader) ([]T, error)) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
