package entrant

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
)

// payload says when a change was due: number intervals after from, by the machine's clock.
type payload struct{ from, every, number int64 }

func (p payload) due(number int64) int64 { return p.from + number*p.every }

func (p payload) String() string { return fmt.Sprintf("%d %d %d", p.from, p.every, p.number) }

func parse(text string) (p payload, ok bool) {
	n, err := fmt.Sscanf(text, "%d %d %d", &p.from, &p.every, &p.number)
	return p, err == nil && n == 3
}

// tracker is what one subscriber has seen.
type tracker struct {
	mu    sync.Mutex
	from  int64 // guarded by mu, as is what follows; of the run of changes
	next  int64 // the number of the first change that was not seen yet
	count int
	times *hdrhistogram.Histogram
}

// see takes a payload. A list has only the latest change, so the ones before it count as seen, too.
func (t *tracker) see(text string) {
	now := time.Now().UnixNano()
	p, ok := parse(text)
	if !ok {
		return // the instance as it was registered
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.from != t.from {
		t.from, t.next = p.from, 0
	}
	for ; t.next <= p.number; t.next++ {
		measure.Record(t.times, time.Duration(now-p.due(t.next)))
		t.count++
	}
}

// take adds what was seen since the last call to times.
func (t *tracker) take(times *hdrhistogram.Histogram) (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	times.Merge(t.times)
	count, t.count = t.count, 0
	t.times.Reset()
	return count
}
