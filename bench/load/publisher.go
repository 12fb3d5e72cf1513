package load

import (
	"context"
	"fmt"
	"os"
	"sync"
)

const (
	// publishRoom is how many results may wait to be published; a handler whose result finds no
	// room waits.
	publishRoom = 4096
	// publishedAtOnce is how many results one message has at most.
	publishedAtOnce = 128
)

// Publisher publishes results, as many in one message as are there, so that no handler waits for
// that. Pending.Published reads the messages.
type Publisher struct {
	publish func(ctx context.Context, message string) error
	lines   chan string
	loop    sync.WaitGroup
}

// NewPublisher starts a publisher, which Close ends.
func NewPublisher(publish func(ctx context.Context, message string) error) *Publisher {
	p := &Publisher{publish: publish, lines: make(chan string, publishRoom)}
	p.loop.Go(p.run)
	return p
}

// Add has a job's result published. It must not be called after Close.
func (p *Publisher) Add(id, stamp string) { p.lines <- id + " " + stamp + "\n" }

func (p *Publisher) run() {
	for line := range p.lines {
		message := line
		for n := min(len(p.lines), publishedAtOnce-1); n > 0; n-- {
			message += <-p.lines
		}
		if err := p.publish(context.Background(), message); err != nil {
			fmt.Fprintln(os.Stderr, "publish:", err) // the load gives these jobs up
		}
	}
}

// Close returns when everything is published.
func (p *Publisher) Close() {
	close(p.lines)
	p.loop.Wait()
}
