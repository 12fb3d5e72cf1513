package session

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

var errFrameTooBig = errors.New("frame too big")

// firstBytes is the size of a session's first buffer, in which most frames fit.
const firstBytes = 1 << 10

// readLoop reads requests until the session ends, and returns the order that tells why.
func (s *session) readLoop() order {
	for s.out.waitRoom(0, s.pause) {
		s.paused.Store(false)
		// No deadline: end and the keep-alive close the connection, and a context would cost every
		// read a timer.
		typ, r, err := s.conn.Reader(context.Background())
		if err != nil {
			return lost(err)
		}
		if typ != websocket.MessageText {
			return order{code: websocket.StatusUnsupportedData, text: "binary frames are not part of the protocol", label: closedBinary, flush: true}
		}
		frame, err := s.readFrame(r)
		if errors.Is(err, errFrameTooBig) {
			return s.tooBig()
		}
		if err != nil {
			return lost(err)
		}
		s.handler.metrics.framesIn.Inc()
		s.handler.metrics.bytesIn.Add(float64(len(frame)))
		req, refusal := s.handler.limits.DecodeRequest(frame)
		switch {
		case refusal == wire.ErrNotUTF8:
			return order{code: websocket.StatusInvalidFramePayloadData, text: "the frame is not valid UTF-8", label: closedNotUTF8, flush: true}
		case refusal != nil:
			s.handler.metrics.malformed.Inc()
			s.sendError(req.ID, wire.NoIndex, "", refusal)
		default:
			s.start(req, len(frame))
		}
	}
	return order{label: closedLost} // never counts: an order was given
}

func (s *session) pause() { s.paused.Store(true) }

// readFrame reads one message into the session's buffer. It takes memory as bytes arrive, so a
// client must send what it makes the replica hold.
func (s *session) readFrame(r io.Reader) ([]byte, error) {
	buf := s.frame[:0]
	if cap(buf) == 0 {
		buf = make([]byte, 0, firstBytes)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.received.Add(int64(n))
		s.frame = nil
		if cap(buf) <= keptBytes {
			s.frame = buf
		}
		switch {
		case len(buf) > s.handler.limits.MaxFrameBytes:
			return nil, errFrameTooBig
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

func (s *session) tooBig() order {
	text := fmt.Sprintf("the frame has more than %d bytes", s.handler.limits.MaxFrameBytes)
	s.sendError("", wire.NoIndex, "", &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: text + ", which is the limit"})
	return order{code: websocket.StatusMessageTooBig, text: text, label: closedTooBig, flush: true}
}

// lost returns the order that tells why nothing more can be read.
func lost(err error) order {
	if websocket.CloseStatus(err) != -1 {
		return order{label: closedByClient}
	}
	return order{label: closedLost}
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
		s.pause()
		s.freed.Wait()
	}
	s.paused.Store(false)
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
