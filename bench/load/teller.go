package load

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// told is how many results may wait to be published; a handler whose result finds no room waits. toldAtOnce is how many
// one message has: as many as there are by then.
const (
	told       = 4096
	toldAtOnce = 128
)

// Teller publishes results, many in one message, so that no handler waits for that. Waiting.Told reads the messages.
type Teller struct {
	publish func(ctx context.Context, message string) error
	lines   chan string
	loop    sync.WaitGroup
}

// NewTeller starts a teller, which Close ends.
func NewTeller(publish func(ctx context.Context, message string) error) *Teller {
	t := &Teller{publish: publish, lines: make(chan string, told)}
	t.loop.Go(t.run)
	return t
}

// Tell has a job's result published. It must not be called after Close.
func (t *Teller) Tell(id, stamp string) { t.lines <- id + " " + stamp + "\n" }

func (t *Teller) run() {
	for line := range t.lines {
		message := line
		for n := min(len(t.lines), toldAtOnce-1); n > 0; n-- {
			message += <-t.lines
		}
		if err := t.publish(context.Background(), message); err != nil {
			fmt.Fprintln(os.Stderr, "publish:", err) // the load gives these jobs up
		}
	}
}

// Close returns when all that was told is published.
func (t *Teller) Close() {
	close(t.lines)
	t.loop.Wait()
}
