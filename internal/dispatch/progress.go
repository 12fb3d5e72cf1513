package dispatch

import "github.com/freeslot/freeslot"

// progress takes in what a handler told. Of what comes before the sink knows the job the
// latest is kept.
func (w *waiter) progress(jobID string, p *freeslot.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.After(&w.progressed) {
		w.progressed = *p
	}
	if w.open && w.sink != nil {
		w.sendProgress(jobID)
	}
}

// passOn tells the sink what it does not know yet of the attempt that it knows of: what
// an earlier one told is of no use any more, and a later one has to be told of first. It
// is called with mu held and a sink that is open.
func (w *waiter) sendProgress(jobID string) {
	if w.progressed.Attempt == w.known.Attempt && w.progressed.After(&w.sentProgress) {
		w.sentProgress = w.progressed
		w.sink.Progress(jobID, w.progressed)
	}
}
