// Command driver wraps the Go packages client and worker for the conformance suite. It speaks the
// drivers' protocol of ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/worker"
)

func main() {
	kind := ""
	if len(os.Args) == 2 {
		kind = os.Args[1]
	}
	var d interface {
		do(command)
		close()
	}
	out := &answers{w: os.Stdout}
	switch kind {
	case "client":
		d = newClientDriver(out)
	case "worker":
		d = newWorkerDriver(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: driver client|worker")
		os.Exit(2)
	}
	if err := read(os.Stdin, d.do); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
	d.close()
}

// command is one line of the input. Do tells which fields count.
type command struct {
	ID int    `json:"id"`
	Do string `json:"do"`

	URL             string         `json:"url"`
	Token           string         `json:"token"`
	MinBackoffMS    int64          `json:"min_backoff_ms"`
	MaxBackoffMS    int64          `json:"max_backoff_ms"`
	PingIntervalMS  int64          `json:"ping_interval_ms"`
	PingTimeoutMS   int64          `json:"ping_timeout_ms"`
	DialTimeoutMS   int64          `json:"dial_timeout_ms"`
	MaxMessageBytes int            `json:"max_message_bytes"`
	Job             freeslot.Job   `json:"job"`
	Jobs            []freeslot.Job `json:"jobs"`
	JobID           string         `json:"job_id"`
	Of              int            `json:"of"`

	Gateway       string             `json:"gateway"`
	TokenFile     string             `json:"token_file"`
	Node          string             `json:"node"`
	Slots         int                `json:"slots"`
	Services      []freeslot.Service `json:"services"`
	HeartbeatMS   int64              `json:"heartbeat_ms"`
	StopTimeoutMS int64              `json:"stop_timeout_ms"`
	Attempt       string             `json:"attempt"`
	Value         json.RawMessage    `json:"value"`
	Result        json.RawMessage    `json:"result"`
	Error         *handlerError      `json:"error"`
}

// handlerError is what a handler returns in place of a result.
type handlerError struct {
	freeslot.JobError
	Retryable    bool  `json:"retryable"`
	RetryDelayMS int64 `json:"retry_delay_ms"`
}

// read calls do for each line.
func read(in io.Reader, do func(command)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			return fmt.Errorf("command %.100s: %w", line, err)
		}
		do(c)
	}
}

// fields are the parts of one line of the output.
type fields map[string]any

type answers struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (a *answers) write(f fields) {
	line, err := json.Marshal(f)
	if err != nil {
		panic(err) // what servers sent is JSON
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.w.Write(append(line, '\n')) // the suite sees that it is missing
}

// answer writes the answer to a command: f, or the error.
func (a *answers) answer(id int, f fields, err error) {
	if err != nil {
		f = fields{"error": errorFields(err)}
	}
	if f == nil {
		f = fields{}
	}
	f["id"] = id
	a.write(f)
}

func errorFields(err error) fields {
	f := fields{"code": "failed", "message": err.Error()}
	coded, isCoded := errors.AsType[*freeslot.Error](err)
	switch {
	case errors.Is(err, client.ErrClosed):
		f["code"] = "closed"
	case errors.Is(err, worker.ErrSuperseded):
		f["code"] = "superseded"
	case errors.Is(err, context.Canceled):
		f["code"] = "aborted"
	case isCoded:
		f["code"] = coded.Code
		if coded.Field != "" {
			f["field"] = coded.Field
		}
		if coded.RetryAfter > 0 {
			f["retry_after_ms"] = coded.RetryAfter.Milliseconds()
		}
	}
	return f
}
