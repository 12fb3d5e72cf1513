package gateway

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// errEnded stops the decoding of a frame whose message has ended the session.
var errEnded = errors.New("the session ends")

// readLoop takes messages until the session ends, and returns the order that tells why.
func (s *session) readLoop() socket.Order {
	for {
		var by *socket.Order
		err := s.conn.Read(func(text []byte) { by = s.take(text) })
		switch {
		case by != nil:
			return *by
		case errors.Is(err, socket.ErrBinary):
			return *s.noText(websocket.StatusUnsupportedData, err.Error())
		case errors.Is(err, socket.ErrTooBig):
			message := fmt.Sprintf("the frame has more than %d bytes", frame.MaxFrameBytes)
			s.sendError(0, &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: message})
			return socket.Order{Code: websocket.StatusMessageTooBig, Text: message, Label: closedDefect, Flush: true}
		case err != nil:
			return s.conn.Lost(err)
		}
	}
}

// noText ends a session whose frame is not text.
func (s *session) noText(code websocket.StatusCode, message string) *socket.Order {
	s.sendError(0, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: message})
	return &socket.Order{Code: code, Text: message, Label: closedDefect, Flush: true}
}

// take starts the requests of a frame. It returns the order to end the session, or nil if the
// session goes on.
func (s *session) take(text []byte) (by *socket.Order) {
	if !utf8.Valid(text) {
		return s.noText(websocket.StatusInvalidFramePayloadData, "the frame is not valid UTF-8")
	}
	var together joint
	err := frame.DecodeRequests(text, func(req *frame.Request) error {
		if s.node == "" {
			by = s.hello(req)
		} else {
			by = s.start(req, &together)
		}
		if by != nil {
			return errEnded
		}
		return nil
	})
	s.startJoint(&together) // those before a defect too
	if err != nil && by == nil {
		return s.defect(wire.AsError(err))
	}
	return by
}

// defect ends a session whose agent does not speak the protocol.
func (s *session) defect(err *freeslot.Error) *socket.Order {
	s.sendError(0, err)
	return defectOrder(err.Message)
}
