package gateway

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// arrayBytes is about the largest frame of several messages: large enough to spare calls, small
// enough that an agent soon has the first message. That may be the answer to a heartbeat.
const arrayBytes = 16 << 10

// maxReason is the longest reason in a close frame, in bytes.
const maxReason = 123

// order tells how a session ends.
type order struct {
	// code goes into the close frame. 0 means no close frame: the connection is gone already.
	code websocket.StatusCode
	// text is the reason in the close frame.
	text string
	// label names the reason in the log and in metrics.
	label string
	// flush is true if the queue is delivered first. Otherwise it is dropped.
	flush bool
}

func stoppingOrder(label string) order {
	return order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: label, flush: true}
}

func defectOrder(text string) *order {
	return &order{code: frame.CloseDefect, text: text, label: closedDefect, flush: true}
}

func rightsOrder(text string) *order {
	return &order{code: frame.CloseRights, text: text, label: closedRights, flush: true}
}

func awayOrder(text string) *order {
	return &order{code: websocket.StatusTryAgainLater, text: text, flush: true}
}

// outbox is the bounded queue between everything that sends to an agent and the session's writer.
// It keeps a slow agent from filling memory.
type outbox struct {
	mu sync.Mutex // guards what follows
	// filled is signalled for the writer.
	filled sync.Cond
	queue  [][]byte
	// messages and bytes count what is queued, and what the writer has taken but not yet written.
	// Invariant: they exceed their bounds only once order is set, or because of a single message.
	messages, bytes int
	order           *order
}

// put queues an encoded message. It queues nothing and returns false if more than most bytes, or
// too many messages, would then wait; a single message is never too large. Once the session ends,
// put drops messages and returns true.
func (o *outbox) put(text []byte, most int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return true
	}
	if o.messages >= queueMessages || o.messages > 0 && o.bytes+len(text) > most {
		return false
	}
	o.queue = append(o.queue, text)
	o.messages++
	o.bytes += len(text)
	o.filled.Signal()
	return true
}

// end sets the order if there is none yet, and reports whether it did.
func (o *outbox) end(by order) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return false
	}
	o.order = &by
	if !by.flush {
		o.queue = nil
	}
	o.filled.Signal()
	return true
}

func (o *outbox) ended() *order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order
}

// take waits for messages or, if none are left, for the order.
func (o *outbox) take() ([][]byte, *order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 {
		if o.order != nil {
			return nil, o.order
		}
		o.filled.Wait()
	}
	all := o.queue
	o.queue = nil
	return all, nil
}

// written records that messages were handed to the connection. It returns false if the rest is no
// longer wanted.
func (o *outbox) written(messages, bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages -= messages
	o.bytes -= bytes
	return o.order == nil || o.order.flush
}

// writeLoop sends queued messages, and at the end carries out the order.
func (s *session) writeLoop() {
	// One timer serves all writes. The connection's own write deadline would not do: it would still
	// be set when the reader answers a ping.
	late := time.AfterFunc(time.Hour, func() {
		s.endSlow()
		s.cut()
	})
	late.Stop()
	defer late.Stop()
	for {
		queued, by := s.out.take()
		if by != nil {
			s.hangUp(by)
			return
		}
		if err := s.write(queued, late); err != nil {
			// The connection is broken. The reader reports why, or late has.
			s.end(order{label: closedLost})
			_ = s.conn.CloseNow()
			return
		}
	}
}

func (s *session) write(queued [][]byte, late *time.Timer) error {
	s.writing.Store(true)
	defer s.writing.Store(false)
	for len(queued) > 0 {
		text, messages, bytes := pack(queued)
		late.Reset(writeTimeout)
		err := s.conn.Write(context.Background(), websocket.MessageText, text)
		late.Stop()
		if err != nil {
			return err
		}
		s.handler.metrics.framesOut.Inc()
		s.handler.metrics.bytesOut.Add(float64(len(text)))
		queued = queued[messages:]
		if !s.out.written(messages, bytes) {
			return nil
		}
		s.deliverHeld()
	}
	return nil
}

// pack makes a frame of the first messages: one of them, or an array of about arrayBytes at most.
func pack(queued [][]byte) (text []byte, messages, bytes int) {
	for messages == 0 || messages < len(queued) && bytes+len(queued[messages]) <= arrayBytes {
		bytes += len(queued[messages])
		messages++
	}
	if messages == 1 {
		return queued[0], 1, bytes
	}
	text = make([]byte, 0, bytes+messages+1)
	for i := range messages {
		text = append(append(text, ','), queued[i]...)
	}
	text[0] = '['
	return append(text, ']'), messages, bytes
}

// hangUp closes the connection, with a close frame if the order has a code. The session's limit
// timer bounds both sides of that handshake.
func (s *session) hangUp(by *order) {
	if by.code == 0 {
		_ = s.conn.CloseNow()
		return
	}
	_ = s.conn.Close(by.code, strings.ToValidUTF8(by.text[:min(len(by.text), maxReason)], ""))
}
