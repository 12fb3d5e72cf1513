package listener

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// freeFailures invalid tokens of an address in failureWindow are answered at once, and each
	// further one after failureDelay.
	freeFailures  = 10
	failureWindow = 10 * time.Second
	failureDelay  = time.Second
	// maxFailing bounds the addresses that are remembered, and maxDelayed the answers that wait.
	maxFailing = 10_000
	maxDelayed = 1024
)

// failures counts the invalid tokens of each address.
type failures struct {
	mu      sync.Mutex // guards the fields that follow
	recent  map[netip.Prefix]*failure
	delayed int
}

type failure struct {
	count int
	since time.Time
}

// Fail notes that a request has no valid token. If its address has failed often, Fail waits before
// it returns, or until the request's context ends. A valid token never waits.
func Fail(r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return
	}
	network := c.strangers.limits.bounded(senderOf(r))
	f := &c.strangers.failures
	if !network.IsValid() || !f.note(network, time.Now()) {
		return
	}
	timer := time.NewTimer(failureDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delayed--
}

// Tried is Prove for owner if the check of a request's token returned no error, and Fail if it
// found the token invalid. A token that could not be checked proves nothing, and is no failure of
// its sender.
func Tried(r *http.Request, owner string, err error) {
	switch {
	case err == nil:
		Prove(r.Context(), owner)
	case freeslot.CodeOf(err) == freeslot.CodeUnauthenticated:
		Fail(r)
	}
}

// note reports whether the answer has to wait.
func (f *failures) note(network netip.Prefix, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.recent[network]
	if one == nil {
		if len(f.recent) >= maxFailing {
			clear(f.recent) // those that go on failing come back
		}
		one = &failure{since: now}
		f.recent[network] = one
	}
	if now.Sub(one.since) > failureWindow {
		*one = failure{since: now}
	}
	one.count++
	if one.count <= freeFailures || f.delayed >= maxDelayed {
		return false
	}
	f.delayed++
	return true
}
