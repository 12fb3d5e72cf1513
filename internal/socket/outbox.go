package socket

import "sync"

// outbox is the bounded queue between the senders of messages for a peer and the writer. It keeps a
// slow peer from filling memory. Messages are encoded straight into its buffer.
type outbox struct {
	maxMessages, maxBytes int

	mu sync.Mutex // guards the fields that follow
	// filled is signalled for the writer, emptied for everything that waits for room.
	filled, emptied sync.Cond
	queue           *chunk // nil while it is empty
	// messages and bytes count what is queued, and what the writer has taken but not yet written.
	// Invariant: they exceed their bounds only because of a single message.
	messages, bytes int
	order           *Order
	// holding counts the callers of Conn.Together. The writer takes nothing meanwhile.
	holding int
	// latest waits beside the queue, and does not count towards its bounds.
	latest latestQueue
}

func (o *outbox) init(maxMessages, maxBytes int) {
	o.maxMessages, o.maxBytes = maxMessages, maxBytes
	o.filled.L, o.emptied.L = &o.mu, &o.mu
}

// put queues the message that encode appends, unless too many messages or more than most bytes
// would then wait; see Conn.Put.
func (o *outbox) put(encode func(dst []byte) []byte, most int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return true
	}
	if o.messages >= o.maxMessages {
		return false
	}
	if o.queue == nil {
		o.queue = newChunk()
	}
	size := o.queue.add(encode)
	if o.messages > 0 && o.bytes+size > most {
		o.queue.removeLast(size)
		return false
	}
	o.messages++
	o.bytes += size
	if o.holding == 0 {
		o.filled.Signal()
	}
	return true
}

func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding++
}

func (o *outbox) letGo() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holding--; o.holding == 0 {
		o.filled.Signal()
	}
}

// end sets the order if there is none yet, and reports whether it did.
func (o *outbox) end(by Order) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return false
	}
	o.order = &by
	o.latest = latestQueue{} // the queue goes first
	if !by.Flush {
		o.queue = nil
	}
	o.filled.Signal()
	o.emptied.Broadcast()
	return true
}

func (o *outbox) ended() *Order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order
}

// take waits for messages or, if none are left, for the order. The caller releases the chunk.
func (o *outbox) take() (*chunk, *Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.holding > 0 || o.queue.len() == 0 && o.latest.len() == 0 {
		if o.order != nil && o.holding == 0 {
			return nil, o.order
		}
		o.filled.Wait()
	}
	full := o.queue
	if full == nil {
		full = newChunk()
	}
	o.queue = nil
	o.latest.take(full)
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
	return o.order == nil || o.order.Flush
}

// waitRoom calls paused before it waits; see Conn.WaitRoom.
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
// bracket that makes an array of them without copying. A nil chunk is empty.
type chunk struct {
	buf []byte
	// ends holds the position after each message.
	ends []int
	// latest counts the messages, at the end, that are from beside the queue.
	latest int
}

// chunks holds empty chunks. Most connections are idle and need none.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk { return chunks.Get().(*chunk) }

// release gives back a chunk that is no longer used, unless it is large.
func (c *chunk) release() {
	if cap(c.buf) <= keptBytes {
		*c = chunk{buf: c.buf[:0], ends: c.ends[:0]}
		chunks.Put(c)
	}
}

func (c *chunk) len() int {
	if c == nil {
		return 0
	}
	return len(c.ends)
}

// add returns the number of bytes that the message takes.
func (c *chunk) add(encode func(dst []byte) []byte) int {
	before := len(c.buf)
	c.buf = encode(append(c.buf, ','))
	c.ends = append(c.ends, len(c.buf))
	return len(c.buf) - before
}

func (c *chunk) removeLast(size int) {
	c.buf = c.buf[:len(c.buf)-size]
	c.ends = c.ends[:len(c.ends)-1]
}

// size tells how much a frame counts in the outbox. latest is the number of its messages that do
// not count.
type size struct{ messages, bytes, latest int }

// size returns the size of messages from to to; the first one begins at position begin.
func (c *chunk) size(from, to, begin int) size {
	counted := min(to, len(c.ends)-c.latest)
	if counted <= from {
		return size{latest: to - from}
	}
	return size{messages: counted - from, bytes: c.ends[counted-1] - begin, latest: to - counted}
}

// arrays yields the messages in arrays of about maxBytes at most; a larger message comes by itself,
// and so does each of them if maxBytes is 0. A frame is valid until the next one is yielded: that
// overwrites the separators at both its ends.
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
