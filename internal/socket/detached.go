package socket

import "bytes"

// NewDetached returns a connection without a peer, for tests of messages. Take stands for its
// writer. Only Put, PutBelow, PutLatest, DropLatest, WaitRoom and Take may be called.
func NewDetached(cfg *Config) *Conn {
	c := &Conn{cfg: cfg}
	c.out.init(cfg.QueueMessages, cfg.QueueBytes)
	return c
}

// Take takes all messages that are queued, and returns copies.
func (c *Conn) Take() (messages [][]byte) {
	for {
		c.out.mu.Lock()
		empty := c.out.queue.len() == 0 && c.out.latest.len() == 0
		c.out.mu.Unlock()
		if empty {
			return messages
		}
		queued, _ := c.out.take()
		for frame, size := range queued.arrays(0) {
			messages = append(messages, bytes.Clone(frame))
			c.out.written(size.messages, size.bytes)
		}
		queued.release()
	}
}
