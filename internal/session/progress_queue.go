package session

import "container/list"

const (
	// progressBytes bounds the progress that waits for one client.
	progressBytes = 1 << 20
	// progressTurn and progressTurnBytes bound how much progress follows each chunk of the queue,
	// and so how long it can delay the next result.
	progressTurn      = 16
	progressTurnBytes = 32 << 10
)

// progressQueue holds the progress that waits for a client: the latest of each job, in the order in
// which the jobs had news. The outbox's mutex guards it. The zero value is empty.
type progressQueue struct {
	byJob map[string]*list.Element
	order list.List // its elements are *jobProgress
	bytes int
}

type jobProgress struct {
	job     string
	message []byte
}

// progressOutcome tells what happened to a message of progress.
type progressOutcome uint8

const (
	// progressQueued: it will be sent, unless later progress or the job's end replaces it.
	progressQueued progressOutcome = iota
	// progressReplaced: as progressQueued, in place of earlier progress.
	progressReplaced
	// progressDropped: too much waits for this client.
	progressDropped
)

func (q *progressQueue) len() int { return q.order.Len() }

func (q *progressQueue) add(job string, message []byte) progressOutcome {
	var former *jobProgress
	size := len(message)
	if known := q.byJob[job]; known != nil {
		former = known.Value.(*jobProgress)
		size -= len(former.message)
	}
	if q.bytes+size > progressBytes {
		return progressDropped
	}
	q.bytes += size
	if former != nil {
		former.message = message
		return progressReplaced
	}
	if q.byJob == nil {
		q.byJob = map[string]*list.Element{}
	}
	q.byJob[job] = q.order.PushBack(&jobProgress{job, message})
	return progressQueued
}

func (q *progressQueue) drop(job string) {
	if known := q.byJob[job]; known != nil {
		q.bytes -= len(q.order.Remove(known).(*jobProgress).message)
		delete(q.byJob, job)
	}
}

// take appends the next messages to a chunk. Progress of an attempt comes after the attempt's
// begin, because the queue goes first. It comes before the job's result, which drops it.
func (q *progressQueue) take(to *chunk) {
	bytes := 0
	for q.len() > 0 && to.progress < progressTurn && bytes < progressTurnBytes {
		next := q.order.Front().Value.(*jobProgress)
		q.drop(next.job)
		to.add(func(dst []byte) []byte { return append(dst, next.message...) })
		to.progress++
		bytes += len(next.message)
	}
}

// putProgress queues progress of a job, in place of the job's earlier progress. It is sent once the
// queue is empty, and never overflows the queue.
func (o *outbox) putProgress(job string, message []byte) progressOutcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order != nil {
		return progressDropped
	}
	o.filled.Signal()
	return o.progress.add(job, message)
}

// dropProgress drops a job's unsent progress.
func (o *outbox) dropProgress(job string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.progress.drop(job)
}
