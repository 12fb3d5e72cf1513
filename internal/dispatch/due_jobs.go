package dispatch

import (
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	dueInterval = 250 * time.Millisecond
	// dueLimit is the most jobs that one call handles.
	dueLimit = 256
	// dueCalls is the most calls that follow each other without a pause.
	dueCalls = 16
	// limitRounds is the number of rounds for each check of limits, and limitBatch is how many
	// limits it looks at.
	limitRounds = 4
	limitBatch  = 64
	// mendRounds is the number of rounds between two checks of the sets for operators. Each checks
	// mendNodes: more would hold up Redis for longer than 1 ms.
	mendRounds = 20
	mendNodes  = 64
	// endedRounds is the number of rounds between two looks at the indexes of ended jobs.
	endedRounds = 4
)

// dueJobs is the loop for due jobs of the cell: a retry or a scheduled job begins to wait, a job
// past its deadline ends. Every replica runs it; Redis handles each job once.
type dueJobs struct {
	*cellClient
	rounds int
	// judged says what becomes of the jobs that the last call listed as unplaced.
	judged                   []cell.Judged
	outage, mending, keeping *logging.Outage
}

func newDueJobs(c *cellClient) *dueJobs {
	return &dueJobs{
		cellClient: c,
		outage:     logging.NewOutage(c.log, "due.failed", "due.handled_again"),
		mending:    logging.NewOutage(c.log, "sets.mend_failed", "sets.mended_again"),
		keeping:    logging.NewOutage(c.log, "ended.keep_failed", "ended.kept_again"),
	}
}

func (l *dueJobs) run() {
	// These calls also prove contact, because each of them writes. A short silence limit needs them
	// more often.
	interval := min(dueInterval, l.d.nodes.SilenceLimit()/reapsPerLimit)
	l.d.tick(max(interval, time.Millisecond), nil, l.runOnce)
}

func (l *dueJobs) runOnce() {
	if l.rounds++; l.rounds%limitRounds == 0 {
		l.checkLimits()
	}
	if l.rounds%mendRounds == 0 && l.d.goesFirst("cell "+strconv.Itoa(l.cell.Index())) {
		l.mendSets()
	}
	if l.rounds%endedRounds == 0 && l.d.goesFirst("ended "+strconv.Itoa(l.cell.Index())) {
		l.keepEnded()
	}
	for range dueCalls {
		if !l.handle() {
			return
		}
	}
}

// keepEnded keeps the indexes of jobs that did not succeed, and the number of dead jobs.
func (l *dueJobs) keepEnded() {
	for range dueCalls {
		ctx, cancel := l.d.timeout()
		did, err := l.cell.KeepEnded(ctx)
		cancel()
		if !l.succeeded(l.keeping, err) || !did.More {
			return
		}
	}
}

// handle handles one batch. It returns true if there is more to do.
func (l *dueJobs) handle() (more bool) {
	ctx, cancel := l.d.timeout()
	defer cancel()
	sent := l.d.nodes.Now()
	did, err := l.cell.Due(ctx, dueLimit, l.judged...)
	l.judged = nil // if the call failed, these jobs are listed again
	_, refusal := script.Refusal(err)
	l.refusal.Store(&refusal)
	if !l.succeeded(l.outage, err) {
		if l.d.ctx.Err() == nil {
			l.contact.lost()
		}
		return false
	}
	l.contact.made(sent, l.d.nodes.Now(), l.contactGap())
	l.metrics.expired.Add(float64(did.Expired))
	if len(did.Classes) > 0 {
		l.wakeSweep()
	}
	l.judged = l.judge(did.Unplaced)
	return did.More || len(l.judged) > 0
}

// checkLimits lets jobs continue that are held back although their limit has room. The script that
// makes room does that, too; this finds what the script could not.
func (l *dueJobs) checkLimits() {
	ctx, cancel := l.d.timeout()
	defer cancel()
	limited, err := l.cell.Limited(ctx)
	if err != nil || !limited {
		return // handle logs a failing cell
	}
	classes, err := l.cell.CheckLimits(ctx, limitBatch)
	if err != nil {
		if l.d.ctx.Err() == nil {
			logFailure(l.sampled, "check limits", err)
		}
		return
	}
	if len(classes) > 0 {
		l.wakeSweep()
	}
}

// mendSets corrects what operators read of some nodes.
func (l *dueJobs) mendSets() {
	ctx, cancel := l.d.timeout()
	defer cancel()
	// A missing right does not pass by itself: an outage is not logged with each call.
	l.succeeded(l.mending, l.cell.Mend(ctx, mendNodes))
}
