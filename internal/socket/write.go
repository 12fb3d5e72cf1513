package socket

import (
	"context"
	"time"

	"github.com/coder/websocket"
)

// Sent counts the messages of a frame. Latest counts the messages of PutLatest among them.
type Sent struct{ Messages, Latest int }

// Write sends queued messages until the connection ends, and then carries out the order. It joins
// messages in arrays of about arrayBytes; 0 sends each by itself. It calls sent after each frame.
func (c *Conn) Write(arrayBytes int, sent func(Sent)) {
	// One timer serves all writes: a context with a deadline for each would cost more than the
	// write. The connection's own write deadline would not do: it would still be set when the
	// reader answers a ping.
	late := StoppedTimer(func() {
		c.End(c.cfg.Slow)
		c.Cut()
	})
	defer late.Stop()
	for {
		queued, by := c.out.take()
		if by != nil {
			c.hangUp(by)
			return
		}
		err := c.write(queued, arrayBytes, late, sent)
		queued.release()
		if err != nil {
			// The connection is broken. The reader reports why, or late has.
			c.End(Order{Label: c.cfg.Lost})
			_ = c.ws.CloseNow()
			return
		}
	}
}

func (c *Conn) write(queued *chunk, arrayBytes int, late *time.Timer, sent func(Sent)) error {
	c.writing.Store(true)
	defer c.writing.Store(false)
	for frame, size := range queued.arrays(arrayBytes) {
		late.Reset(c.cfg.WriteTimeout)
		kind := websocket.MessageText
		if frame[0] < ' ' {
			kind = websocket.MessageBinary
		}
		err := c.ws.Write(context.Background(), kind, frame)
		late.Stop()
		if err != nil {
			return err
		}
		c.cfg.FramesOut.Inc()
		c.cfg.BytesOut.Add(float64(len(frame)))
		more := c.out.written(size.messages, size.bytes)
		sent(Sent{Messages: size.messages + size.latest, Latest: size.latest})
		if !more {
			return nil
		}
	}
	return nil
}
