package pick

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/node/collector"
)

// maxServices bounds the services that have figures of their own; further services share "other".
const maxServices = 40

// Calls measures how long the calls of this process take, and collects that as the figures "calls".
// Each service that was called since the last collection has three: <service>_ms, the mean response
// time of the answered calls; <service>_answered and <service>_failed, the numbers of calls.
// Characters of the name that a figure cannot have become underscores. Give it to pickers,
// transports and interceptors, and to the collectors of a provider. It is safe for concurrent use.
type Calls struct {
	mu       sync.Mutex
	services map[string]*spell // guarded by mu; since the last collection
}

// spell sums up the calls of one service.
type spell struct {
	answered, failed int64
	took             time.Duration // of answered calls
}

// NewCalls returns an empty Calls.
func NewCalls() *Calls { return &Calls{services: make(map[string]*spell)} }

// Add records one call, with its error if it failed. A nil Calls records nothing.
func (c *Calls) Add(service string, took time.Duration, err error) {
	if c == nil {
		return
	}
	name := fieldOf(service)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[name]
	if s == nil && len(c.services) >= maxServices {
		name = "other"
		s = c.services[name]
	}
	if s == nil {
		s = new(spell)
		c.services[name] = s
	}
	if err != nil {
		s.failed++
		return
	}
	s.answered++
	s.took += took
}

// fieldOf returns a service's name in the form that begins a figure's name.
func fieldOf(service string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToLower(service))
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		name = "s" + name
	}
	return name[:min(len(name), 50)]
}

// Type returns the name of the figures.
func (*Calls) Type() string { return "calls" }

// Available returns true.
func (*Calls) Available(context.Context) bool { return true }

// Cost returns low.
func (*Calls) Cost() collector.Cost { return collector.CostLow }

// Collect returns the figures since its last call.
func (c *Calls) Collect(context.Context) (collector.Metrics, error) {
	c.mu.Lock()
	services := c.services
	c.services = make(map[string]*spell, len(services))
	c.mu.Unlock()
	figures := make(collector.Metrics, 3*len(services))
	for name, s := range services {
		figures[name+"_answered"], figures[name+"_failed"] = s.answered, s.failed
		if s.answered > 0 {
			mean := s.took.Seconds() * 1000 / float64(s.answered)
			figures[name+"_ms"] = math.Round(mean*1000) / 1000
		}
	}
	return figures, nil
}
