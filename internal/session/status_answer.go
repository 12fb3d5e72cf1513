package session

import "github.com/freeslot/freeslot"

const (
	// maxTurns is the number of requests of a session that ask for a job's status at a time. Each
	// can bring a result of megabytes, which the session then holds.
	maxTurns = 8
	// statusBytes is room for a status without its result.
	statusBytes = 32 << 10
)

// takeTurn waits for one of the turns to ask for a job's status, and for room in the queue. Without
// turns, a client that reconnects and attaches to many ended jobs would overflow the queue with the
// answers that it asked for. The caller gives the turn back with giveTurn, even if takeTurn
// returned false because the session ends.
//
// Every turn ends in bounded time: the writer makes room, or ends the session after WriteTimeout.
// The dispatcher bounds its calls itself.
func (s *session) takeTurn() bool {
	s.turns <- struct{}{}
	return s.conn.WaitRoom(0)
}

func (s *session) giveTurn() { <-s.turns }

// replyStatus calls send, which queues the status, once there is room for it. The caller must not
// hold mu: the dispatcher would wait for the client.
//
// Replies come one by one, so that no two fill the same room. So answers alone never overflow the
// queue. If the session ends, the status is dropped.
func (s *session) replyStatus(status *freeslot.JobStatus, send func()) {
	s.replying.Lock()
	defer s.replying.Unlock()
	s.conn.WaitRoom(statusBytes + len(status.Result))
	send()
}
