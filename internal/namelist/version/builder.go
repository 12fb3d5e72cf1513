package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Plan says what to build: the entries of Base, changed by Edits, and then by Upload. Each of them
// may be missing. So a replacing import has only Upload; compaction has Base and Edits; expansion
// and a move have Base, with another number of segments or another server.
type Plan struct {
	List   string
	Number int64
	Build  string // 128 random bits, hex; each operation has its own
	Form   form.Form
	Seed   uint64
	Filter filter.Kind
	// Base is read from From.
	Base *namelist.Version
	From *Segments
	// Edits are by id, as the list's form has it.
	Edits map[string]namelist.Change
	// The entries of Upload are added, or removed if Remove is set.
	Upload *Upload
	Remove bool
	// DropBefore drops entries of the base and of edits that expired before that time, and refuses
	// such entries of the upload; zero does neither.
	DropBefore time.Time
	Budget     Budget
}

// Budget bounds what lists may use on a server.
type Budget struct {
	MaxBytes int64 // 0 is no limit
	// Reserve records what the build needs on its server. It returns the bytes that all versions
	// use there, and the bytes that other builds have reserved. nil stands for none.
	Reserve func(ctx context.Context, need namelist.Reservation) (lists, others int64, err error)
}

func (p *Plan) partitionBits() uint8 {
	bytes := int64(0)
	if p.Upload != nil {
		bytes = 2 * p.Upload.Bytes // it may be compressed
	}
	if p.Base != nil {
		bytes += max(p.Base.Bytes, 24*p.Base.Count)
	}
	return partitionBits(bytes)
}

// Result says what was built.
type Result struct {
	// Version lacks what only the list knows: Server, Base, Edited, Doubt, AtMS, Author and Note.
	Version namelist.Version
	// Report is empty without an upload.
	Report  Report
	Expired int64 // entries that DropBefore has dropped
}

// Step is a step of a build.
type Step string

// The steps, in their order.
const (
	StepParse  Step = "parse"
	StepBase   Step = "base"
	StepSort   Step = "sort"
	StepWrite  Step = "write"
	StepVerify Step = "verify"
)

// Progress says how far a step is, in bytes (parse), partitions (sort) or segments.
type Progress struct {
	Step        Step
	Done, Total int64
}

// Builder makes versions in a folder of its own, one at a time.
type Builder struct {
	// Dir is emptied when another build begins. The caller removes it at the end.
	Dir string
	// To is the server that versions are written to.
	To *Segments
	// Progress may be nil. It is called from one goroutine at a time, often, and must not block.
	Progress func(Progress)
}

// run is one build.
type run struct {
	*Plan
	builder *Builder
	dir     string
	to      *Segments
	journal *journal
	report  Report
}

// Build makes the version, or continues to make it. Once it has returned the result, further calls
// return the same. Errors: *TooLargeError; *DamageError if the base or the new version is damaged;
// *BudgetError; errors of the disk, of Redis and of ctx. What was written before the error stays.
func (b *Builder) Build(ctx context.Context, plan *Plan) (*Result, error) {
	r := &run{Plan: plan, builder: b, dir: b.Dir, to: b.To}
	var err error
	if r.journal, err = openJournal(b.Dir, plan); err != nil {
		return nil, fmt.Errorf("open the journal of a build: %w", err)
	}
	for _, step := range []struct {
		name Step
		do   func(context.Context) error
	}{{StepParse, r.parse}, {StepBase, r.base}, {StepSort, r.sort}, {StepWrite, r.write}, {StepVerify, r.verify}} {
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s version %d of list %s: %w", step.name, plan.Number, plan.List, err)
		}
	}
	if err := errors.Join(r.clear(familySorted), ctx.Err()); err != nil {
		return nil, err
	}
	total := r.journal.total()
	r.report.Duplicates = total.Duplicates
	return &Result{Version: *r.journal.Version, Report: r.report, Expired: total.Expired}, nil
}

func (r *run) progress(step Step, done, total int64) {
	if r.builder.Progress != nil {
		r.builder.Progress(Progress{Step: step, Done: done, Total: total})
	}
}

func (r *run) clear(family string) error { return newSpool(r.dir, family, 0).clear() }

// parse reads the upload into partition files.
func (r *run) parse(ctx context.Context) error {
	if r.Upload == nil {
		return nil
	}
	if found, err := load(r.dir, reportFile, &r.report); found || err != nil {
		return err
	}
	lines := newSpool(r.dir, familyLines, r.journal.Bits)
	if err := lines.clear(); err != nil {
		return err
	}
	at := int64(0) // for removals, the expiry does not matter
	if !r.DropBefore.IsZero() && !r.Remove {
		at = r.DropBefore.UnixMilli()
	}
	report, err := parse(ctx, r.Upload, r.Form, at, func(read int64) { r.progress(StepParse, read, r.Upload.Bytes) },
		func(id string, expires int64) error {
			return lines.add(form.Sum(r.Seed, id), record{id: id, expires: expires, remove: r.Remove})
		})
	if err == nil {
		err = lines.finish()
	}
	if err != nil {
		return err
	}
	r.report = *report
	return store(r.dir, reportFile, report)
}

// base writes the base version and the edits into partition files.
func (r *run) base(ctx context.Context) error {
	if r.journal.Based {
		return nil
	}
	base, edits := newSpool(r.dir, familyBase, r.journal.Bits), newSpool(r.dir, familyEdits, r.journal.Bits)
	if err := errors.Join(base.clear(), edits.clear()); err != nil {
		return err
	}
	if r.Base != nil {
		err := r.From.Read(ctx, r.List, r.Base, func(done uint32, id string, expires int64) error {
			r.progress(StepBase, int64(done), int64(r.Base.Segments))
			return base.add(form.Sum(r.Seed, id), record{id: id, expires: expires})
		})
		if err != nil {
			return err
		}
	}
	for id, change := range r.Edits {
		if err := edits.add(
			form.Sum(r.Seed, id), record{id: id, expires: change.ExpiresMS, remove: change.Remove},
		); err != nil {
			return err
		}
	}
	if err := errors.Join(base.finish(), edits.finish()); err != nil {
		return err
	}
	r.journal.Based = true
	return r.journal.save(r.dir)
}

// sortWorkers is the number of partitions in memory.
const sortWorkers = 2

// sort makes the sorted partition files.
func (r *run) sort(ctx context.Context) error {
	sorters := make(chan *sorter, sortWorkers)
	for range sortWorkers {
		s := &sorter{dir: r.dir, bits: r.journal.Bits, seed: r.Seed}
		if !r.DropBefore.IsZero() {
			s.dropBefore = r.DropBefore.UnixMilli()
		}
		sorters <- s
	}
	var mu sync.Mutex // guards the journal
	calls := newFlight(sortWorkers)
	for p, done := range r.journal.Partitions {
		if done.Done {
			continue
		}
		calls.run(func() error {
			s := <-sorters
			defer func() { sorters <- s }()
			done, err := s.sort(p)
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.journal.Partitions[p] = done
			if err := r.journal.save(r.dir); err != nil {
				return err
			}
			r.progress(StepSort, int64(p), int64(len(r.journal.Partitions)))
			return removePartition(r.dir, p)
		})
	}
	return calls.wait()
}
