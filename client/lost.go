package client

import "github.com/freeslot/freeslot"

// mostLost bounds the lost requests that are remembered.
const mostLost = 10_000

// keyName names the jobs under an idempotency key; empty without one. No job id looks like it.
func keyName(key string) string {
	if key == "" {
		return ""
	}
	return "key " + key
}

// lose remembers what a request without an answer may still take away. A replica that was frozen
// carries out what it had received, although the client has the job on another connection by then.
// The caller holds mu.
func (c *Client) lose(k *call) {
	for i, name := range k.names {
		if name != "" && (k.attach || k.open(i)) && len(c.lost) < mostLost {
			c.lost[name]++
		}
	}
}

// detached ends a handle whose job went to another client. If a lost request of this client can
// have done that, the client attaches once more instead. The caller holds mu.
func (c *Client) detached(h *Handle) {
	for _, name := range []string{h.id, h.key} {
		if c.lost[name] > 0 {
			c.lost[name]--
			h.taken = true
			c.signalOrphans()
			return
		}
	}
	h.finish(freeslot.JobStatus{}, &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "another client attached to the job and gets its result",
	})
}
