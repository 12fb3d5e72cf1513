package server

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
)

const keptLines = 20

// output logs each line that the server prints, and keeps the last ones for errors.
type output struct {
	logger *zap.Logger

	mu      sync.Mutex
	partial []byte   // guarded by mu: a line without its end
	lines   []string // guarded by mu: at most keptLines
}

// Write never fails, so that the server is never blocked by its log.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, rest, found := bytes.Cut(o.partial, []byte{'\n'})
		if !found {
			return len(p), nil
		}
		o.add(strings.TrimSpace(string(line)))
		o.partial = rest
	}
}

func (o *output) add(line string) {
	if line == "" {
		return
	}
	o.logger.Debug("redis_server.output", zap.String("line", line))
	o.lines = append(o.lines, line)
	o.lines = slices.Delete(o.lines, 0, max(len(o.lines)-keptLines, 0))
}

func (o *output) contains(s string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.lines, func(line string) bool { return strings.Contains(line, s) })
}

// tail returns the last n lines as one.
func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lines) == 0 {
		return "it printed nothing"
	}
	return strings.Join(o.lines[max(0, len(o.lines)-n):], "; ")
}
