package session

import "github.com/freeslot/freeslot"

const (
	// maxAsking is how many requests of a session ask for a job's status at a time:
	// each can bring a result of megabytes, which the session then holds.
	maxAsking = 8
	// statusBytes is room for all of a status but its result.
	statusBytes = 32 << 10
)

// ask takes one of the turns to ask for a job's status, which may come with a
// result, once the queue has room. Without it a client that attaches to many ended
// jobs, as each does that reconnects, would overflow the queue by what it asked for.
// The caller gives the turn back with asked, also when ask returned false because the
// session ends.
//
// Every turn ends in bounded time: the writer makes room, or ends the session after
// WriteTimeout; calls of the dispatcher are bounded by themselves.
func (s *session) ask() bool {
	s.asking <- struct{}{}
	return s.out.waitRoom(0, func() {})
}

func (s *session) asked() { <-s.asking }

// reply calls send, which queues the status, once there is room for it. mu must not
// be held: it would keep the dispatcher waiting for the client.
//
// Replies come one by one, so that no two fill the same room: answers alone never
// overflow the queue. When the session ends the status is dropped.
func (s *session) reply(status *freeslot.JobStatus, send func()) {
	s.replying.Lock()
	defer s.replying.Unlock()
	s.out.waitRoom(statusBytes+len(status.Result), func() {})
	send()
}
