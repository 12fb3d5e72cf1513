package dispatch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Defaults of Config.
const (
	DefaultSubmitTimeout   = 3 * time.Second
	DefaultRecheckInterval = 5 * time.Second
	DefaultCandidates      = 2
	DefaultRounds          = 4
	DefaultSweepInterval   = time.Second
	DefaultReplyBlock      = 5 * time.Second
	DefaultMoveGrace       = 10 * time.Second
)

// Config configures a dispatcher. The zero value of each field except Replica means its default.
type Config struct {
	// Replica names this process and its reply streams. It must be unique among the running
	// replicas.
	Replica string
	// SubmitTimeout bounds the attempts to place one job.
	SubmitTimeout time.Duration
	// RecheckInterval is how long a job may be outstanding before its record is read again, and
	// the interval from then on.
	RecheckInterval time.Duration
	// Candidates is how many nodes one reservation offers the job to.
	Candidates int
	// Rounds is how many reservations may be refused before the fleet counts as full and the job
	// is enqueued.
	Rounds int
	// SweepInterval is the interval at which free nodes are sought for waiting jobs, no matter
	// which events arrived. It varies by a quarter.
	SweepInterval time.Duration
	// ReplyBlock is how long one read of a reply stream waits for news.
	ReplyBlock time.Duration
	// MoveGrace is how long a cell must have had no fitting node before its waiting jobs move to
	// another cell. If it is negative, they never move.
	MoveGrace time.Duration
	// Weight is a tenant's share among tenants that wait for the same nodes, from 1. It must not
	// block. nil means 1 for all.
	Weight func(tenant string) int
	// Rates are the submit rates, by tenant; 0 means none. DefaultRate is the rate of every other
	// tenant; nil means none.
	Rates       map[string]cell.Rate
	DefaultRate *cell.Rate
	// Admit decides about each job before it is placed, also about one that an operator submits
	// again. It may replace the request's job by a copy. It must not block. nil admits all jobs.
	Admit func(r *Request) error
	// Limits returns the limits of a tenant. It must not block. nil means no limits.
	Limits func(tenant string) Limits
	// Submitted is told of each job that was accepted or refused, also of runs of schedules. It must
	// not block, and may be called by several goroutines. It may be nil.
	Submitted func(tenant string, refused bool)
	// Came gets the kind and the slots of each new job that was accepted, without jobs for later. Ran
	// gets how long the last attempt of a job ran that succeeded or failed while a client of this
	// replica awaited it. Neither may block; several goroutines call both. Both may be nil.
	Came func(k Kind, slots int)
	Ran  func(k Kind, took time.Duration)
}

// Kind is how demand is counted: by the pool of the jobs' class (see [selection.Class.Pool]; "" for
// none) and their service.
type Kind struct{ Pool, Service string }

// WithDefaults returns a copy of c with zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	c.SubmitTimeout = cmp.Or(c.SubmitTimeout, DefaultSubmitTimeout)
	c.RecheckInterval = cmp.Or(c.RecheckInterval, DefaultRecheckInterval)
	c.Candidates = cmp.Or(c.Candidates, DefaultCandidates)
	c.Rounds = cmp.Or(c.Rounds, DefaultRounds)
	c.SweepInterval = cmp.Or(c.SweepInterval, DefaultSweepInterval)
	c.ReplyBlock = cmp.Or(c.ReplyBlock, DefaultReplyBlock)
	c.MoveGrace = cmp.Or(c.MoveGrace, DefaultMoveGrace)
	if c.Weight == nil {
		c.Weight = func(string) int { return 1 }
	}
	if c.Limits == nil {
		c.Limits = func(string) Limits { return Limits{} }
	}
	if c.Submitted == nil {
		c.Submitted = func(string, bool) {}
	}
	if c.Came == nil {
		c.Came = func(Kind, int) {}
	}
	if c.Ran == nil {
		c.Ran = func(Kind, time.Duration) {}
	}
	return c
}

// Validate returns an error that names the first bad field.
func (c Config) Validate() error {
	if err := freeslot.ValidateName("replica", c.Replica); err != nil {
		return err
	}
	if c.Candidates > cell.MaxCandidates {
		return fmt.Errorf("candidates is %d, expected at most %d", c.Candidates, cell.MaxCandidates)
	}
	return nil
}

// Limits bounds the jobs of one tenant. 0 means no limit. Any other limit of a number of jobs must
// be at least the number of cells.
type Limits struct {
	// Running (max_running) is how many jobs may run at a time. Further ones are held back.
	Running int
	// Waiting (max_waiting) is how many jobs may wait for a slot, after a failure or for a time.
	// Further ones are refused as overloaded. It is checked when a job gets no slot at once, and
	// at every submit of a tenant with a Running limit.
	Waiting int
	// Priorities (max_priority + 1) is how many priorities, from 0, jobs may have. A job of a higher
	// one is refused as invalid, unless an operator submits it again.
	Priorities int
	// Kinds (max_kinds) is how many classes may have waiting jobs because a job of this tenant came
	// first, over all cells as far as this replica knows, and in each cell in any case. A job that
	// would make one more is refused as overloaded. A tenant with this limit also has at most a
	// quarter of the jobs for later of each cell.
	Kinds int
}
