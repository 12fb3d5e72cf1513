package session

import (
	"sync"

	"github.com/coder/websocket"
)

// order tells how a session ends.
type order struct {
	// code goes into the close frame. 0 means no close frame: the connection is gone already, or
	// not worth one.
	code websocket.StatusCode
	// text is the reason in the close frame, at most 123 bytes.
	text string
	// label names the reason in the log and in metrics.
	label string
	// flush is true if the queue is delivered first. Otherwise it is dropped.
	flush bool
}

func stoppingOrder(label string) order {
	return order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: label, flush: true}
}

// keptBytes is the largest buffer that an idle session keeps for the next burst.
const keptBytes = 32 << 10

// outbox is the bounded queue between the senders of messages for a client and the session's
// writer. It keeps a slow client from filling memory. Messages are encoded straight into its
// buffer.
type outbox struct {
	maxMessages, maxBytes int

	mu sync.Mutex // guards the fields that follow
	// filled is signalled for the writer, emptied for everything that waits for room.
	filled, emptied sync.Cond
	queue           chunk
	// messages and bytes count what is queued, and what the writer has taken but not yet written.
	// Invariant: they exceed their bounds only once order is set, or because of a single message.
	messages, bytes int
	order           *order
	// progress waits beside the queue, and does not count towards its bounds.
	progress progressQueue
}

func (o *outbox) init(maxMessages, maxBytes int) {
	o.maxMessages, o.maxBytes = maxMessages, maxBytes
	o.filled.L, o.emptied.L = &o.mu, &o.mu
}

// put queues the message that encode appends. It returns false if that overflowed the queue: the
// session must then end. A message larger than the limit passes an empty queue, because otherwise
// no client could ever get it. Messages for a session that is ending are dropped.
func (o *outbox) put(encode func(dst []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return true
	}
	before := len(o.queue.buf)
	o.queue.add(encode)
	o.messages++
	o.bytes += len(o.queue.buf) - before
	o.filled.Signal()
	return o.messages <= o.maxMessages && (o.bytes <= o.maxBytes || o.messages == 1)
}

// end sets the order if there is none yet, and reports whether it did.
func (o *outbox) end(by order) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return false
	}
	o.order = &by
	o.progress = progressQueue{} // results go first
	if !by.flush {
		o.queue = chunk{}
	}
	o.filled.Signal()
	o.emptied.Broadcast()
	return true
}

func (o *outbox) ended() *order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order
}

// take waits for messages or, if none are left, for the order. The writer hands back its last chunk
// to be filled again.
func (o *outbox) take(used chunk) (chunk, *order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.queue.len() == 0 && o.progress.len() == 0 {
		if o.order != nil {
			return chunk{}, o.order
		}
		o.filled.Wait()
	}
	full := o.queue
	o.queue = used.reset()
	o.progress.take(&full)
	return full, nil
}

// written records that messages were handed to the connection. It returns false if the rest is no
// longer wanted.
func (o *outbox) written(messages, bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages -= messages
	o.bytes -= bytes
	if !o.crowded() {
		o.emptied.Broadcast()
	}
	return o.order == nil || o.order.flush
}

// waitRoom waits until the queue is at most half full and has room for size more bytes, or is
// empty. It calls paused before it waits. It returns false if the session ends.
func (o *outbox) waitRoom(size int, paused func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.order == nil && o.messages > 0 && (o.crowded() || o.bytes+size > o.maxBytes) {
		paused()
		o.emptied.Wait()
	}
	return o.order == nil
}

func (o *outbox) crowded() bool {
	return o.messages > o.maxMessages/2 || o.bytes > o.maxBytes/2
}

// chunk is a sequence of encoded messages, each with one byte before it: room for the comma or
// bracket that makes an array of them without copying.
type chunk struct {
	buf []byte
	// ends holds the position after each message.
	ends []int
	// progress counts the messages, at the end, that are progress from beside the queue.
	progress int
}

func (c *chunk) len() int { return len(c.ends) }

func (c *chunk) add(encode func(dst []byte) []byte) {
	c.buf = encode(append(c.buf, ','))
	c.ends = append(c.ends, len(c.buf))
}

func (c chunk) reset() chunk {
	if cap(c.buf) > keptBytes {
		return chunk{}
	}
	return chunk{buf: c.buf[:0], ends: c.ends[:0]}
}

// size tells how much a frame counts in the outbox. progress is the number of its progress
// messages, which do not count.
type size struct{ messages, bytes, progress int }

// size returns the size of messages from to to; the first one begins at position begin.
func (c *chunk) size(from, to, begin int) size {
	counted := min(to, len(c.ends)-c.progress)
	if counted <= from {
		return size{progress: to - from}
	}
	return size{messages: counted - from, bytes: c.ends[counted-1] - begin, progress: to - counted}
}

// each yields the messages one by one.
func (c *chunk) each(yield func(frame []byte, s size) bool) {
	begin := 0
	for i, end := range c.ends {
		if !yield(c.buf[begin+1:end], c.size(i, i+1, begin)) {
			return
		}
		begin = end
	}
}

// arrays yields the messages in arrays of about maxBytes at most; a larger message comes by itself.
// A frame is valid until the next one is yielded: that overwrites the separators at both its ends.
func (c *chunk) arrays(maxBytes int) func(yield func(frame []byte, s size) bool) {
	return func(yield func(frame []byte, s size) bool) {
		begin := 0
		for i := 0; i < len(c.ends); {
			next := i + 1
			for next < len(c.ends) && c.ends[next]-begin < maxBytes {
				next++
			}
			end := c.ends[next-1]
			frame := c.buf[begin+1 : end]
			if next > i+1 {
				if end == len(c.buf) {
					c.buf = append(c.buf, ']')
				}
				c.buf[begin], c.buf[end] = '[', ']'
				frame = c.buf[begin : end+1]
			}
			if !yield(frame, c.size(i, next, begin)) {
				return
			}
			i, begin = next, end
		}
	}
}
