package dispatch

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// probeRest is the least time for which a class's nodes in a cell count as full after some of
	// them answered a probe so. Without that rest, each submit to a full fleet would make Redis
	// look at as many nodes as a call can name, instead of running the completions that free slots.
	// The rest is as long as the call took: the slower Redis answers, the longer.
	probeRest = 5 * time.Millisecond
	// probeRestMost bounds the rest, and how long other jobs wait for an answer.
	probeRestMost = 100 * time.Millisecond
)

// fullNodes remembers for each class whether the nodes of a cell are full. Two classes can share an
// entry, by their hashes; then the older fact is lost, and one more job asks. The zero value is
// empty. It is safe for concurrent use.
type fullNodes struct {
	mu      sync.Mutex
	classes [256]classFull
}

type classFull struct {
	class string    // the class's id
	full  time.Time // until then the nodes count as full for a job of one slot
	said  time.Time // until then they count as full for a job of several slots
	asked time.Time // when a job of one slot asked; zero if no answer is awaited
}

// probe is the question that a call asks nodes that seem full. asked is zero for a job that does
// not keep others from asking. The zero value means no question.
type probe struct {
	class string
	asked time.Time
}

var fullSeed = maphash.MakeSeed()

// of returns what is known of a class's nodes. The caller holds mu.
func (f *fullNodes) of(class string) *classFull {
	facts := &f.classes[maphash.String(fullSeed, class)%uint64(len(f.classes))]
	if facts.class != class {
		*facts = classFull{class: class}
	}
	return facts
}

// has reports whether the nodes count as full for a job of several slots. Nodes do not announce
// further slots after the first free one, so only a recent answer counts.
func (f *fullNodes) has(class string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.of(class).said)
}

// ask reports whether a job of one slot may ask the nodes: they do not count as full, and no other
// such job awaits an answer. The caller passes the answer to answered.
func (f *fullNodes) ask(class string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := f.of(class)
	if now.Before(facts.full) || !facts.asked.IsZero() && now.Before(facts.asked.Add(probeRestMost)) {
		return false
	}
	facts.asked = now
	return true
}

// answered records the answer to a probe. full is true if the nodes had no room.
func (f *fullNodes) answered(p probe, now time.Time, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := f.of(p.class)
	if facts.asked.Equal(p.asked) {
		facts.asked = time.Time{}
	}
	if !full {
		return
	}
	facts.said = later(facts.said, now.Add(probeRest))
	if !p.asked.IsZero() { // a lack of several slots does not mean a lack of one
		facts.full = later(facts.full, now.Add(min(max(probeRest, now.Sub(p.asked)), probeRestMost)))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
