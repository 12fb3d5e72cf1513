package session

const (
	// newsBytes bounds what waits of progress for one client.
	newsBytes = 1 << 20
	// newsTurn and newsTurnBytes bound what of it goes behind each chunk of the queue, and
	// so how long it can keep the next result waiting.
	newsTurn      = 16
	newsTurnBytes = 32 << 10
)

// news is the progress that waits for a client, of each job the latest. The outbox's mutex
// guards it.
type news struct {
	// latest has the messages by job; turns has the jobs in the order in which they are
	// served, and some that are gone from latest, or stand there twice.
	latest map[string][]byte
	turns  []string
	bytes  int
}

// newsOutcome says what became of a message of progress.
type newsOutcome uint8

const (
	// newsQueued: it will be sent, unless it is replaced or the job ends before.
	newsQueued newsOutcome = iota
	// newsReplaced: as newsQueued, in place of an earlier one.
	newsReplaced
	// newsDropped: too much waits for this client.
	newsDropped
)

func (n *news) len() int { return len(n.latest) }

func (n *news) add(job string, message []byte) newsOutcome {
	former, known := n.latest[job]
	if n.bytes-len(former)+len(message) > newsBytes {
		return newsDropped
	}
	if n.latest == nil {
		n.latest = map[string][]byte{}
	}
	n.latest[job] = message
	n.bytes += len(message) - len(former)
	if known {
		return newsReplaced
	}
	n.turns = append(n.turns, job)
	if len(n.turns) > 2*len(n.latest)+newsTurn {
		n.compact()
	}
	return newsQueued
}

// compact leaves each job one turn, its first.
func (n *news) compact() {
	seen := make(map[string]bool, len(n.latest))
	kept := n.turns[:0]
	for _, job := range n.turns {
		if _, waits := n.latest[job]; waits && !seen[job] {
			seen[job] = true
			kept = append(kept, job)
		}
	}
	clear(n.turns[len(kept):])
	n.turns = kept
}

func (n *news) drop(job string) {
	n.bytes -= len(n.latest[job])
	delete(n.latest, job)
}

// take appends the next messages to a chunk. What tells of an attempt comes after it began,
// because the queue goes first, and before the job's result, with which it is dropped.
func (n *news) take(to *chunk) {
	bytes := 0
	for len(n.turns) > 0 && to.news < newsTurn && bytes < newsTurnBytes {
		job := n.turns[0]
		n.turns = n.turns[1:]
		message, waits := n.latest[job]
		if !waits {
			continue
		}
		n.drop(job)
		to.add(func(dst []byte) []byte { return append(dst, message...) })
		to.news++
		bytes += len(message)
	}
	if len(n.latest) == 0 {
		n.turns = nil
	}
}

// tell has a message of progress sent as soon as there is nothing else to send, in place of
// an earlier one of the job. It never overflows the queue.
func (o *outbox) tell(job string, message []byte) newsOutcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return newsDropped
	}
	o.filled.Signal()
	return o.news.add(job, message)
}

// untell drops what was not sent of a job: what follows is its end.
func (o *outbox) untell(job string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.news.drop(job)
}
