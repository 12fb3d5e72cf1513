package session

import (
	"context"
	"time"

	"github.com/coder/websocket"
)

// arrayBytes is about the largest frame of several messages: large enough to spare calls, small
// enough that a client soon has the first message.
const arrayBytes = 256 << 10

// writeLoop sends queued messages, and at the end carries out the order.
func (s *session) writeLoop() {
	// One timer serves all writes: a context with a deadline for each would cost more than the
	// write. The connection's own write deadline would not do: it would still be set when the
	// reader answers a ping.
	late := stoppedTimer(func() {
		s.endSlow()
		s.cut()
	})
	defer late.Stop()
	var queued chunk
	for {
		var by *order
		queued, by = s.out.take(queued)
		if by != nil {
			s.hangUp(by)
			return
		}
		if err := s.write(&queued, late); err != nil {
			// The connection is broken. The reader reports why, or late has.
			s.end(order{label: closedLost})
			_ = s.conn.CloseNow()
			return
		}
	}
}

func (s *session) write(queued *chunk, late *time.Timer) error {
	s.writing.Store(true)
	defer s.writing.Store(false)
	frames := queued.each
	if s.batch {
		frames = queued.arrays(arrayBytes)
	}
	m := s.handler.metrics
	for frame, size := range frames {
		late.Reset(s.handler.cfg.WriteTimeout)
		err := s.conn.Write(context.Background(), websocket.MessageText, frame)
		late.Stop()
		if err != nil {
			return err
		}
		m.framesOut.Inc()
		m.bytesOut.Add(float64(len(frame)))
		m.messagesOut.Add(float64(size.messages + size.progress))
		m.progressSent.Add(float64(size.progress))
		if !s.out.written(size.messages, size.bytes) {
			return nil
		}
	}
	return nil
}

// hangUp closes the connection, with a close frame if the order has a code. The session's limit
// timer bounds both sides of that handshake.
func (s *session) hangUp(by *order) {
	if by.code == 0 {
		_ = s.conn.CloseNow()
		return
	}
	_ = s.conn.Close(by.code, by.text)
}
