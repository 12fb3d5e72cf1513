package cell

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// maxHops bounds how often one call follows a job from cell to cell.
const maxHops = 8

// Moved says what DriveMoves did.
type Moved struct {
	// Jobs counts the jobs that arrived in other cells. Cells lists these cells.
	Jobs  int
	Cells []int
	// More is true if there is more to do.
	More bool
}

// DriveMoves brings moving jobs of a cell to their targets, and checks whether the records that
// point to moved jobs are still needed. It handles at most limit of each, and only those that a
// replica should have looked at late ago or earlier. Any number of callers may do this at once.
// Errors: from Redis, for every cell that did not do its part; the others did theirs.
func (s *Set) DriveMoves(ctx context.Context, from *Cell, late time.Duration, limit int) (Moved, error) {
	done, err := s.drive(ctx, from, func() ([]Move, bool, error) {
		return from.moves(ctx, from.layout.Moves(), late, limit)
	})
	if err != nil {
		return done, err
	}
	left, err := s.drive(ctx, from, func() ([]Move, bool, error) {
		return from.moves(ctx, from.layout.Moved(), late, limit)
	})
	done.More = done.More || left.More
	return done, err
}

// help drives the move of one job for a caller that wants to act on the job. Only after that the
// job is in one place.
func (s *Set) help(ctx context.Context, from *Cell, job string) error {
	_, err := s.drive(ctx, from, func() ([]Move, bool, error) { return from.moves(ctx, from.layout.Moves(), 0, 1, job) })
	return err
}

func (s *Set) drive(ctx context.Context, from *Cell, read func() ([]Move, bool, error)) (done Moved, err error) {
	begin := time.Now()
	found, more, err := read()
	if err != nil {
		return Moved{}, err
	}
	// The clock of a target must be known before its jobs are read: see moveLife.
	unread := false
	for to := range byTarget(found) {
		if c := s.target(to); c != nil && c.clock.Load() == nil {
			ctx, cancel := c.atMost(ctx)
			_, failed := c.moveAck(ctx, nil)
			cancel()
			unread, err = true, errors.Join(err, failed)
		}
	}
	if unread {
		begin = time.Now()
		var again error
		if found, more, again = read(); again != nil {
			return Moved{}, errors.Join(err, again)
		}
	}
	done.More = more
	for to, moves := range byTarget(found) {
		n, failed := s.driveTo(ctx, from, to, moves, begin)
		if done.Jobs += n; n > 0 {
			done.Cells = append(done.Cells, to)
		}
		err = errors.Join(err, failed)
	}
	return done, err
}

// atMost bounds a call, so that one silent cell cannot use up the caller's time.
func (c *Cell) atMost(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.runner.ConfirmTimeout())
}

func byTarget(all []Move) map[int][]*Move {
	out := make(map[int][]*Move)
	for i := range all {
		out[all[i].Cell] = append(out[all[i].Cell], &all[i])
	}
	return out
}

// target returns the cell with this index, or nil if it is out of range (only after a manual edit
// in Redis).
func (s *Set) target(index int) *Cell {
	if index < 0 || index >= len(s.cells) {
		return nil
	}
	return s.cells[index]
}

// driveTo does the next step of the moves to one cell. moves were read after begin.
func (s *Set) driveTo(ctx context.Context, from *Cell, to int, moves []*Move, begin time.Time) (came int, err error) {
	if to == keyDecides {
		return 0, from.noteMoves(ctx, s.decide(moves))
	}
	target := s.target(to)
	if target == nil {
		return 0, from.noteMoves(ctx, later(moves, moveLook))
	}
	var coming, gone []*Move
	for _, m := range moves {
		if m.Done {
			gone = append(gone, m)
		} else {
			coming = append(coming, m)
		}
	}
	here, came, err := s.bring(ctx, from, target, coming, begin)
	if err == nil {
		err = s.lookAfter(ctx, from, target, append(here, gone...))
	}
	if err != nil {
		// target may not answer, so the moves behind these have their turn first.
		return came, errors.Join(err, from.noteMoves(ctx, later(moves, moveAgain)))
	}
	return came, nil
}

// decide finds the cells of jobs whose key decides.
func (s *Set) decide(moves []*Move) []moveNote {
	notes := later(moves, moveAgain)
	for i, m := range moves {
		if home, ok := s.guide.Load().home(m); ok {
			notes[i] = goesTo(m, home)
		}
	}
	return notes
}

func later(moves []*Move, after time.Duration) []moveNote {
	notes := make([]moveNote, len(moves))
	for i, m := range moves {
		notes[i] = lookLater(m, after)
	}
	return notes
}

// bring creates jobs in their new cell, and then makes the old cell's records point to it.
func (s *Set) bring(
	ctx context.Context, from, target *Cell, moves []*Move, begin time.Time,
) (here []*Move, came int, err error) {
	if len(moves) == 0 {
		return nil, 0, nil
	}
	clock, known := target.clockAt(begin)
	if !known { // the cell did not answer
		return nil, 0, from.noteMoves(ctx, later(moves, moveAgain))
	}
	if err := s.carryKeys(ctx, from, moves); err != nil {
		return nil, 0, err
	}
	limited, cancel := target.atMost(ctx)
	defer cancel()
	what, err := target.moveIn(limited, moves, clock+moveLife.Milliseconds(), s.guide.Load())
	if err != nil {
		return nil, 0, err
	}
	var notes []moveNote
	for i, m := range moves {
		switch what[i] {
		case moveCame, moveThere:
			if what[i] == moveCame {
				came++
			}
			here = append(here, m)
			notes = append(notes, isThere(m))
		case moveBroken:
			notes = append(notes, lookLater(m, moveLook))
		default: // too late: the job is read again later
		}
	}
	return here, came, from.noteMoves(ctx, notes)
}

// carryKeys copies the jobs' idempotency keys to the cell where a repeated submission would look
// for them.
func (s *Set) carryKeys(ctx context.Context, from *Cell, moves []*Move) error {
	for _, m := range moves {
		if !strings.Contains(m.field("spec"), `"idempotency_key"`) {
			continue
		}
		home, ok := s.guide.Load().home(m)
		to := s.target(home)
		if !ok || to == nil || to == from {
			continue
		}
		tenant, job, err := m.what()
		if err != nil || job.IdempotencyKey == "" {
			continue
		}
		value, left, err := from.key(ctx, tenant, job.IdempotencyKey)
		if err == nil && left > 0 {
			err = to.setKey(ctx, tenant, job.IdempotencyKey, value, left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAfter settles moves that are done, and stops looking at records that point to a job that has
// ended.
func (s *Set) lookAfter(ctx context.Context, from, target *Cell, moves []*Move) error {
	if len(moves) == 0 {
		return nil
	}
	limited, cancel := target.atMost(ctx)
	defer cancel()
	left, err := target.moveAck(limited, moves)
	if err != nil {
		return err
	}
	notes := make([]moveNote, len(moves))
	for i, m := range moves {
		notes[i] = keptFor(m, max(left[i], 0))
		if left[i] == -1 {
			notes[i] = lookLater(m, moveLook)
		}
	}
	return from.noteMoves(ctx, notes)
}

// act does something with a job where it is now. It first completes a move that is under way.
func (s *Set) act(
	ctx context.Context, jobID string, do func(c *Cell, id string) (freeslot.JobStatus, error),
) (freeslot.JobStatus, error) {
	c, err := s.ofJob(jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	id := jobID
	for range maxHops {
		status, err := do(c, id)
		if err != nil {
			return freeslot.JobStatus{}, asked(err, jobID, id)
		}
		switch status.State {
		case freeslot.StateMoving:
			if err := s.help(ctx, c, id); err != nil {
				return freeslot.JobStatus{}, err
			}
		case stateMoved:
			next, err := c.routes(ctx, []string{id})
			if err != nil {
				return freeslot.JobStatus{}, err
			}
			if to := s.target(next[0].to); next[0].onward() && to != nil {
				c, id = to, MovedID(jobID, next[0].to)
			}
		default:
			return status, nil
		}
	}
	return freeslot.JobStatus{}, movesOn(jobID)
}

// asked returns err. If the job is gone, the error names the id that the caller asked for.
func asked(err error, jobID, id string) error {
	if id != jobID && freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return notFound(jobID)
	}
	return err
}

func movesOn(jobID string) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: moveAgain / 4,
		Message: "job " + jobID + " is moving to another part of Redis",
	}
}

// seek follows the record at c to the cell where the job is; nil if the job is gone. A job whose
// move has only begun is still where it was.
func (s *Set) seek(ctx context.Context, c *Cell, id string) (*Cell, string, error) {
	var from *Cell // the last known cell, until the job is known to have gone further
	fromID, hop := "", 0
	for range 2 * maxHops {
		found, err := c.routes(ctx, []string{id})
		if err != nil {
			return nil, "", err
		}
		at := found[0]
		if at.state == "" || at.hop < hop {
			return from, fromID, nil
		}
		if !at.onward() {
			return c, id, nil
		}
		from, fromID = nil, ""
		if at.state == freeslot.StateMoving {
			from, fromID = c, id
		}
		hop = at.hop + 1
		if c = s.target(at.to); c == nil {
			return from, fromID, nil
		}
		id = MovedID(id, at.to)
	}
	return nil, "", movesOn(id)
}

// read reads a job where it is now, without changing anything.
func (s *Set) read(
	ctx context.Context, jobID string, do func(c *Cell, id string) (freeslot.JobStatus, error),
) (freeslot.JobStatus, error) {
	first, err := s.ofJob(jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	status, err := do(first, jobID)
	for range maxHops {
		if err != nil || status.State != freeslot.StateMoving && status.State != stateMoved {
			return status, err
		}
		c, id, err := s.seek(ctx, first, jobID)
		if err != nil {
			return freeslot.JobStatus{}, err
		}
		if c == nil {
			return freeslot.JobStatus{}, notFound(jobID)
		}
		if status, err = do(c, id); err != nil {
			return freeslot.JobStatus{}, asked(err, jobID, id)
		}
		if status.State == freeslot.StateMoving {
			return status, nil // it was nowhere else a moment ago
		}
	}
	return freeslot.JobStatus{}, movesOn(jobID)
}

// Elsewhere reads the records of jobs that are not where their ids say, as JobsByID does. failed
// holds the jobs that nothing is known about, because a cell did not answer or because they are
// moving just now.
func (s *Set) Elsewhere(ctx context.Context, ids []string) (jobs []freeslot.JobStatus, failed map[string]bool) {
	failed = make(map[string]bool)
	at := make(map[string]string, len(ids))                    // the id asked for, by the id where the job is
	hops, begun := make(map[string]int), make(map[string]bool) // begun: the job may not have arrived yet
	wanted := make([][]string, len(s.cells))
	open := make([][]string, len(s.cells))
	add := func(lists [][]string, id, now string) {
		at[now] = id
		if c, ok := s.OfJob(now); ok {
			lists[c.cfg.Index] = append(lists[c.cfg.Index], now)
		}
	}
	for _, id := range ids {
		add(open, id, id)
	}
	for round := 0; round < 2*maxHops && some(open); round++ {
		next := make([][]string, len(s.cells))
		found, errs := s.allRoutes(ctx, open)
		for i, group := range open {
			for k, now := range group {
				id := at[now]
				switch {
				case errs[i] != nil:
					failed[id] = true
				case found[i][k].state == "" || found[i][k].hop < hops[id]:
					failed[id] = begun[id] // otherwise it is gone
				case found[i][k].onward() && s.target(found[i][k].to) != nil:
					hops[id], begun[id] = found[i][k].hop+1, found[i][k].state == freeslot.StateMoving
					add(next, id, MovedID(id, found[i][k].to))
				default:
					add(wanted, id, now)
				}
			}
		}
		open = next
	}
	return s.collect(ctx, at, wanted, open, failed)
}

func some(groups [][]string) bool {
	for _, g := range groups {
		if len(g) > 0 {
			return true
		}
	}
	return false
}

func (s *Set) allRoutes(ctx context.Context, groups [][]string) (found [][]route, errs []error) {
	found = make([][]route, len(s.cells))
	return found, s.each(func(c *Cell) (err error) {
		if i := c.cfg.Index; len(groups[i]) > 0 {
			found[i], err = c.routes(ctx, groups[i])
		}
		return err
	})
}

// collect reads the records that were found. open are jobs that kept moving.
func (s *Set) collect(
	ctx context.Context, at map[string]string, wanted, open [][]string, failed map[string]bool,
) ([]freeslot.JobStatus, map[string]bool) {
	var jobs []freeslot.JobStatus
	for _, group := range open {
		for _, now := range group {
			failed[at[now]] = true
		}
	}
	parts := make([][]record, len(s.cells))
	errs := s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.records(ctx, wanted[c.cfg.Index], JobFilter{})
		return err
	})
	for i, group := range wanted {
		for _, now := range group {
			if errs[i] != nil {
				failed[at[now]] = true
			}
		}
		for _, r := range parts[i] {
			r.ID = at[r.id]
			if r.State == freeslot.StateMoving || r.State == stateMoved {
				failed[r.ID] = true
			} else {
				jobs = append(jobs, r.JobStatus)
			}
		}
	}
	return jobs, failed
}

// Cancel is [Cell.Cancel] in the cell where the job is. After a move that is not the cell in its
// id.
func (s *Set) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.CancelIf(ctx, tenant, jobID, Seen{})
}

// CancelIf is Cancel, but leaves a job alone that is in another attempt or state than seen. Errors:
// also *freeslot.Error (conflict), with the status, if seen does not hold. A job that was cancelled
// in that attempt is no conflict.
func (s *Set) CancelIf(ctx context.Context, tenant, jobID string, seen Seen) (freeslot.JobStatus, error) {
	if seen.State == freeslot.StateMoving {
		seen.State = freeslot.StateWaiting
	}
	status, err := s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) {
		return c.cancelIf(ctx, tenant, id, seen)
	})
	if err == nil {
		err = seen.compare(&status)
	}
	return status, err
}

// Attach is [Cell.Attach] in the cell where the job is. After a move that is not the cell in its
// id.
func (s *Set) Attach(ctx context.Context, tenant, jobID, replica string) (freeslot.JobStatus, error) {
	return s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) {
		return c.Attach(ctx, tenant, id, replica)
	})
}

// Job is [Cell.Job] in the cell where the job is. After a move that is not the cell in its id.
func (s *Set) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.read(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) { return c.Job(ctx, tenant, id) })
}

// Spec is [Cell.Spec] in the cell where the job is. After a move that is not the cell in its id.
func (s *Set) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	c, err := s.ofJob(jobID)
	if err != nil {
		return nil, "", err
	}
	job, tenant, err := c.Spec(ctx, jobID)
	if freeslot.CodeOf(err) != freeslot.CodeNotFound {
		return job, tenant, err
	}
	// The record that a moved job leaves behind has no spec.
	at, id, failed := s.seek(ctx, c, jobID)
	if failed != nil || at == nil {
		return nil, "", cmp.Or(failed, err)
	}
	if job, tenant, err = at.Spec(ctx, id); err != nil {
		err = asked(err, jobID, id)
	}
	return job, tenant, err
}

// Requeued is [Cell.Requeued] in the cell where the job is. After a move that is not the cell in
// its id.
func (s *Set) Requeued(ctx context.Context, jobID, as string) error {
	_, err := s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) {
		status, err := c.Job(ctx, "", id)
		if err == nil && status.State.Terminal() {
			err = c.Requeued(ctx, id, as)
		}
		return status, err
	})
	return err
}

// Drop is [Cell.Drop] in the cell where the job is. After a move that is not the cell in its id.
func (s *Set) Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) {
		status, err := c.Drop(ctx, tenant, id)
		if OnTheMove(status.State) {
			return status, nil
		}
		return status, err
	})
}
