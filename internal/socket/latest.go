package socket

import "container/list"

const (
	// latestBytes bounds the messages of PutLatest that wait for one peer.
	latestBytes = 1 << 20
	// latestTurn and latestTurnBytes bound how much of them follows each chunk of the queue, and so
	// how long they can delay the next message of the queue.
	latestTurn      = 16
	latestTurnBytes = 32 << 10
)

// latestQueue holds the latest message of each key, in the order in which the keys had news. The
// outbox's mutex guards it. The zero value is empty.
type latestQueue struct {
	byKey map[string]*list.Element
	order list.List // its elements are *latestMessage
	bytes int
}

type latestMessage struct {
	key     string
	message []byte
}

// Outcome tells what happened to a message of PutLatest.
type Outcome uint8

const (
	// Queued is a message that will be sent, unless it is replaced or dropped before.
	Queued Outcome = iota
	// Replaced is a message that is queued in place of an earlier message.
	Replaced
	// Dropped is a message that is not sent: too much waits for this peer, or the connection ends.
	Dropped
)

func (q *latestQueue) len() int { return q.order.Len() }

func (q *latestQueue) add(key string, message []byte) Outcome {
	var former *latestMessage
	size := len(message)
	if known := q.byKey[key]; known != nil {
		former = known.Value.(*latestMessage)
		size -= len(former.message)
	}
	if q.bytes+size > latestBytes {
		return Dropped
	}
	q.bytes += size
	if former != nil {
		former.message = message
		return Replaced
	}
	if q.byKey == nil {
		q.byKey = map[string]*list.Element{}
	}
	q.byKey[key] = q.order.PushBack(&latestMessage{key, message})
	return Queued
}

func (q *latestQueue) drop(key string) {
	if known := q.byKey[key]; known != nil {
		q.bytes -= len(q.order.Remove(known).(*latestMessage).message)
		delete(q.byKey, key)
	}
}

// take appends the next messages to a chunk, behind the messages of the queue.
func (q *latestQueue) take(to *chunk) {
	bytes := 0
	for q.len() > 0 && to.latest < latestTurn && bytes < latestTurnBytes {
		next := q.order.Front().Value.(*latestMessage)
		q.drop(next.key)
		to.add(func(dst []byte) []byte { return append(dst, next.message...) })
		to.latest++
		bytes += len(next.message)
	}
}

// putLatest is Conn.PutLatest.
func (o *outbox) putLatest(key string, message []byte) Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return Dropped
	}
	o.filled.Signal()
	return o.latest.add(key, message)
}

// dropLatest is Conn.DropLatest.
func (o *outbox) dropLatest(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest.drop(key)
}

// waits is Conn.Waits.
func (o *outbox) waits(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest.byKey[key] != nil
}
