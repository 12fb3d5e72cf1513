package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const observerMode = "core-observer"

func init() { children[observerMode] = observe }

// sight is a state of a node as a cache came to know it.
type sight struct {
	Node string `json:"n"`
	Used int    `json:"u"`
	// Mark is what the writer put into the resources.
	Mark string `json:"m"`
	// AtNS is the wall clock, which all processes of a machine share.
	AtNS int64 `json:"t"`
}

// recorder is a mirror that notes when the cache has applied what. Only nodes whose id begins with prefix
// count.
type recorder struct {
	prefix string
	mu     sync.Mutex // guards sights
	sights []sight
}

// Put implements cache.Mirror; a Heartbeat follows.
func (*recorder) Put(*cell.NodeState) {}

// Heartbeat implements cache.Mirror.
func (r *recorder) Heartbeat(id string, used int, _ freeslot.Status, _ int64, resources string) {
	if !strings.HasPrefix(id, r.prefix) {
		return
	}
	at := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sights = append(r.sights, sight{Node: id, Used: used, Mark: resources, AtNS: at})
}

// Remove implements cache.Mirror.
func (*recorder) Remove(string) {}

// SetConfig implements cache.Mirror.
func (*recorder) SetConfig(*selection.Config) {}

func (r *recorder) take() []sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.sights
	r.sights = nil
	return taken
}

// observe is a replica without clients. It answers "sights" with what was seen since the last time, and
// "states" with all nodes.
func observe(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("expected the URL of Redis")
	}
	seen := new(recorder)
	startCtx, cancel := context.WithTimeout(ctx, childStart)
	defer cancel()
	r, err := openReplica(startCtx, args[0], observerMode, seen, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	fmt.Fprintln(out, "ready")
	return serveLines(in, out, map[string]func() any{
		"sights": func() any { return seen.take() },
		"states": func() any { return r.cache.States() },
	})
}

// serveLines answers each line with JSON until the input ends.
func serveLines(in *bufio.Reader, out io.Writer, answers map[string]func() any) error {
	w := bufio.NewWriterSize(out, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, ok := answers[strings.TrimSpace(line)]
		if !ok {
			return fmt.Errorf("asked for %q", line)
		}
		if err := json.NewEncoder(w).Encode(answer()); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// startReady starts a child and waits until it says that it is ready.
func startReady(mode string, args ...string) (*childProcess, error) {
	c, err := startChild(mode, args...)
	if err != nil {
		return nil, err
	}
	return ready(mode, c)
}

func ready(mode string, c *childProcess) (*childProcess, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	if line != "ready" {
		return nil, errors.Join(fmt.Errorf("%s said %q, expected ready", mode, line), c.end())
	}
	return c, nil
}

// query asks a child and decodes its answer.
func query[T any](c *childProcess, question string) (T, error) {
	var answer T
	line, err := c.ask(question)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal([]byte(line), &answer)
}
