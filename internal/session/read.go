package session

import (
	"errors"
	"fmt"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// readLoop reads requests until the session ends, and returns the order that tells why.
func (s *session) readLoop() socket.Order {
	for s.conn.WaitRoomToRead() {
		var by *socket.Order
		err := s.conn.Read(func(frame []byte) { by = s.take(frame) })
		switch {
		case by != nil:
			return *by
		case errors.Is(err, socket.ErrBinary):
			return socket.Order{Code: websocket.StatusUnsupportedData, Text: err.Error(), Label: closedBinary, Flush: true}
		case errors.Is(err, socket.ErrTooBig):
			return s.tooBig()
		case err != nil:
			return s.conn.Lost(err)
		}
	}
	return socket.Order{Label: closedLost} // never counts: an order was given
}

// take starts the request of a frame. It returns the order to end the session, or nil if the
// session goes on.
func (s *session) take(frame []byte) *socket.Order {
	req, refusal := s.handler.limits.DecodeRequest(frame)
	switch {
	case refusal == wire.ErrNotUTF8:
		return &socket.Order{
			Code: websocket.StatusInvalidFramePayloadData, Text: "the frame is not valid UTF-8", Label: closedNotUTF8,
			Flush: true,
		}
	case refusal != nil:
		s.handler.metrics.malformed.Inc()
		s.sendError(req.ID, wire.NoIndex, "", refusal)
	default:
		s.start(req, len(frame))
	}
	return nil
}

func (s *session) tooBig() socket.Order {
	text := fmt.Sprintf("the frame has more than %d bytes", s.handler.limits.MaxFrameBytes)
	s.sendError(
		"", wire.NoIndex, "", &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: text + ", which is the limit"},
	)
	return socket.Order{Code: websocket.StatusMessageTooBig, Text: text, Label: closedTooBig, Flush: true}
}

// start starts a goroutine for a request, once few enough are under way.
func (s *session) start(req wire.Request, size int) {
	if req.Type == wire.TypePing {
		s.send(func(dst []byte) []byte { return wire.AppendPong(dst, req.ID) })
		return
	}
	cfg := &s.handler.cfg
	s.mu.Lock()
	// The reader continues while the queue is at most half full. The other half is for the answers
	// to all requests under way.
	maxJobs := cfg.QueueMessages / 2 / messagesPerJob
	for s.underWay > 0 && (s.underWay >= cfg.MaxRequests || s.underWayBytes+size > cfg.MaxRequestBytes ||
		s.underWayJobs+len(req.Jobs) > maxJobs) {
		s.conn.Pause()
		s.freed.Wait()
	}
	s.conn.Resume()
	s.underWay++
	s.underWayBytes += size
	s.underWayJobs += len(req.Jobs)
	s.mu.Unlock()
	s.requests.Go(func() {
		s.serve(&req)
		s.requestEnded(size, len(req.Jobs))
	})
}

func (s *session) requestEnded(size, jobs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	s.underWayBytes -= size
	s.underWayJobs -= jobs
	s.freed.Signal()
	s.closeIfIdle()
}
