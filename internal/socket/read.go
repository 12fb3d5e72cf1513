package socket

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/coder/websocket"
)

// The reasons for which Read refuses a frame.
var (
	ErrBinary = errors.New("binary frames are not part of the protocol")
	ErrTooBig = errors.New("frame too big")
)

const (
	// firstBytes is the size of a frame's first buffer, in which most frames fit. keptBytes is the
	// size of the largest buffer that is used again.
	firstBytes = 1 << 10
	keptBytes  = 32 << 10
)

// frames holds buffers for frames. Most connections are idle and need none.
var frames = sync.Pool{New: func() any { return new(make([]byte, 0, firstBytes)) }}

// Read reads one text frame and passes it to take, which must not keep it. The error is ErrBinary,
// ErrTooBig, or says why nothing more can be read.
func (c *Conn) Read(take func(text []byte)) error {
	// No deadline: End and pings close the connection, and a context would cost every read a timer.
	typ, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return err
	}
	if typ != websocket.MessageText {
		return ErrBinary
	}
	buf := frames.Get().(*[]byte)
	text, err := c.readFrame(r, (*buf)[:0])
	if err != nil {
		return err
	}
	c.cfg.FramesIn.Inc()
	c.cfg.BytesIn.Add(float64(len(text)))
	take(text)
	if cap(text) <= keptBytes {
		*buf = text
		frames.Put(buf)
	}
	return nil
}

// readFrame reads one message into buf, or a larger one. It takes memory as bytes arrive, so a peer
// must send what it makes this process hold.
func (c *Conn) readFrame(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		c.received.Add(int64(n))
		switch {
		case len(buf) > c.cfg.MaxFrameBytes:
			return nil, ErrTooBig
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// Lost returns the order that tells why nothing more can be read.
func (c *Conn) Lost(err error) Order {
	if websocket.CloseStatus(err) != -1 {
		return Order{Label: c.cfg.Closed}
	}
	return Order{Label: c.cfg.Lost}
}
