package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/wire"
)

var (
	errFrameTooBig = errors.New("frame too big")
	// errEnded stops the decoding of a frame whose message has ended the session.
	errEnded = errors.New("the session ends")
)

const (
	// firstBytes is the size of a frame's first buffer, in which most frames fit. keptBytes is the
	// size of the largest buffer that is used again.
	firstBytes = 1 << 10
	keptBytes  = 8 << 10
)

// frames holds buffers for frames. Most sessions are idle and need none.
var frames = sync.Pool{New: func() any { return new(make([]byte, 0, firstBytes)) }}

// readLoop takes messages until the session ends, and returns the order that tells why.
func (s *session) readLoop() order {
	for {
		// No deadline: end and the keep-alive close the connection, and a context would cost every
		// read a timer.
		typ, r, err := s.conn.Reader(context.Background())
		if err != nil {
			return lost(err)
		}
		if typ != websocket.MessageText {
			return s.noText(websocket.StatusUnsupportedData, "binary frames are not part of the protocol")
		}
		buf := frames.Get().(*[]byte)
		text, err := s.readFrame(r, (*buf)[:0])
		if errors.Is(err, errFrameTooBig) {
			message := fmt.Sprintf("the frame has more than %d bytes", frame.MaxFrameBytes)
			s.sendError(0, &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: message})
			return order{code: websocket.StatusMessageTooBig, text: message, label: closedDefect, flush: true}
		}
		if err != nil {
			return lost(err)
		}
		s.handler.metrics.framesIn.Inc()
		s.handler.metrics.bytesIn.Add(float64(len(text)))
		if !utf8.Valid(text) {
			return s.noText(websocket.StatusInvalidFramePayloadData, "the frame is not valid UTF-8")
		}
		if by := s.take(text); by != nil {
			return *by
		}
		if cap(text) <= keptBytes {
			*buf = text
			frames.Put(buf)
		}
	}
}

// noText ends a session whose frame is not text.
func (s *session) noText(code websocket.StatusCode, message string) order {
	s.sendError(0, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: message})
	return order{code: code, text: message, label: closedDefect, flush: true}
}

// take starts the requests of a frame. It returns the order to end the session, or nil if the
// session goes on.
func (s *session) take(text []byte) (by *order) {
	err := frame.DecodeRequests(text, func(req *frame.Request) error {
		if s.node == "" {
			by = s.hello(req)
		} else {
			by = s.start(req)
		}
		if by != nil {
			return errEnded
		}
		return nil
	})
	if err != nil && by == nil {
		return s.defect(wire.AsError(err))
	}
	return by
}

// defect ends a session whose agent does not speak the protocol.
func (s *session) defect(err *freeslot.Error) *order {
	s.sendError(0, err)
	return defectOrder(err.Message)
}

// readFrame reads one message into buf, or a larger one. It takes memory as bytes arrive, so an
// agent must send what it makes the replica hold.
func (s *session) readFrame(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.received.Add(int64(n))
		switch {
		case len(buf) > frame.MaxFrameBytes:
			return nil, errFrameTooBig
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

// lost returns the order that tells why nothing more can be read.
func lost(err error) order {
	if websocket.CloseStatus(err) != -1 {
		return order{label: closedByAgent}
	}
	return order{label: closedLost}
}
