package finding

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// lookTimeout bounds one look at all sources.
	lookTimeout = 2 * time.Second
	// fresh is how long what a source said is not asked again, so that many callers cost no more than
	// one.
	fresh = 2 * time.Second
	// watchInterval is how often sources in memory and watched ones are looked at.
	watchInterval = 5 * time.Second
)

// Report is the answer of one look.
type Report struct {
	AtMS     int64     `json:"at_ms" doc:"When the look ended, in milliseconds since 1970, by the replica's clock."`
	Findings []Finding `json:"findings" doc:"The critical ones first, then the oldest."`
	// Unknown lists the sources that could not say.
	Unknown []string `json:"unknown,omitempty" doc:"The parts that could not say in time whether something is wrong; what they said before is left out."`
	// Unchecked holds what could not be checked, and why.
	Unchecked []string `json:"unchecked,omitempty" doc:"What could not be checked, and why, such as a setting of Redis that it does not tell; only for doctor=true."`
}

// Board asks sources what is wrong. It is safe for concurrent use.
type Board struct {
	sources []Source
	log     *zap.Logger

	ctx    context.Context
	cancel context.CancelFunc
	start  sync.Once
	done   chan struct{}

	busy  chan struct{} // holds a token during a look, which guards the fields that follow
	parts []part        // of the sources, in their order
	at    time.Time     // of the last look
	turn  time.Time     // when a source was asked last because it was its turn
}

// part is what a source said last.
type part struct {
	at       time.Time // when it has answered, or failed to; zero before the first look
	findings []Finding
	since    map[string]int64 // by the id of each finding
	unknown  bool
	// unchecked is what the source could not check.
	unchecked Unchecked
}

// New makes a Board. It does no I/O.
func New(sources []Source, log *zap.Logger) *Board {
	b := &Board{sources: sources, log: log, done: make(chan struct{}), busy: make(chan struct{}, 1)}
	b.parts = make([]part, len(sources))
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Start starts the loop that looks at the sources in memory.
func (b *Board) Start(context.Context) error {
	b.start.Do(func() { go b.watch() })
	return nil
}

// Stop ends the loop.
func (b *Board) Stop(ctx context.Context) error {
	b.start.Do(func() { close(b.done) })
	b.cancel()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Board) watch() {
	defer close(b.done)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		b.busy <- struct{}{}
		var watched []int
		for i := range b.sources {
			if s := &b.sources[i]; s.Memory || s.Watched {
				watched = append(watched, i)
			}
		}
		b.look(watched)
		<-b.busy
		select {
		case <-ticker.C:
		case <-b.ctx.Done():
			return
		}
	}
}

// Look returns what is wrong, as of at most two seconds ago. It returns within four seconds, and
// sources that did not answer in time are unknown. Who asks does not end a look, because its answer
// is for others, too.
func (b *Board) Look() Report { return b.LookWithin(fresh) }

// LookWithin is Look, except that what sources outside of memory have said counts for longer, the
// time age. They take turns: one of them is asked again every two seconds, so that someone who
// looks all the time costs few calls.
func (b *Board) LookWithin(age time.Duration) Report {
	b.busy <- struct{}{}
	defer func() { <-b.busy }()
	if due := b.due(time.Now(), age); len(due) > 0 {
		b.look(due)
	}
	return b.sum()
}

// due returns the sources to ask now. The caller holds busy.
func (b *Board) due(now time.Time, age time.Duration) (due []int) {
	next := -1 // the source whose turn it is
	for i := range b.sources {
		s, p := &b.sources[i], &b.parts[i]
		switch old := now.Sub(p.at); {
		case old <= fresh:
		case s.Memory, p.unknown, old > age:
			due = append(due, i)
		case !s.Watched && (next < 0 || p.at.Before(b.parts[next].at)):
			next = i
		}
	}
	if next >= 0 && now.Sub(b.turn) > fresh {
		b.turn, due = now, append(due, next)
	}
	return due
}

// look asks these sources at the same time. The caller holds busy.
func (b *Board) look(which []int) {
	ctx, cancel := context.WithTimeout(b.ctx, lookTimeout)
	defer cancel()
	var running sync.WaitGroup
	for _, i := range which {
		running.Go(func() { b.parts[i].ask(ctx, &b.sources[i], b.log) })
	}
	running.Wait()
	b.at = time.Now()
}

func (p *part) ask(ctx context.Context, s *Source, log *zap.Logger) {
	found, err := s.Look(ctx)
	p.at = time.Now()
	if unchecked, ok := errors.AsType[Unchecked](err); ok {
		p.unchecked, err = unchecked, nil
	} else {
		p.unchecked = nil
	}
	if p.unknown = err != nil; p.unknown {
		log.Debug("findings.unknown", zap.String("source", s.Name), zap.Error(err))
		return // since when its findings hold is kept: the source may say the same again
	}
	now, since := time.Now().UnixMilli(), make(map[string]int64, len(found))
	for i := range found {
		f := &found[i]
		f.SinceMS = cmp.Or(f.SinceMS, p.since[f.ID], now)
		f.Link, f.Docs = linkOf(f), cmp.Or(f.Docs, docsOf(f))
		f.Names = f.Names[:min(len(f.Names), MaxNames)]
		since[f.ID] = f.SinceMS
	}
	p.findings, p.since = found, since
}

// sum returns the last findings of all sources. The caller holds busy.
func (b *Board) sum() Report {
	r := Report{AtMS: b.at.UnixMilli(), Findings: []Finding{}}
	for i := range b.parts {
		if b.parts[i].unknown {
			r.Unknown = append(r.Unknown, b.sources[i].Name)
			continue
		}
		r.Findings = append(r.Findings, b.parts[i].findings...)
		r.Unchecked = append(r.Unchecked, b.parts[i].unchecked...)
	}
	r.sort()
	return r
}

// And returns this report and another one together, as of the older one.
func (r Report) And(other Report) Report {
	r.AtMS = min(r.AtMS, other.AtMS)
	r.Findings = slices.Concat(r.Findings, other.Findings)
	r.Unknown, r.Unchecked = slices.Concat(r.Unknown, other.Unknown), slices.Concat(r.Unchecked, other.Unchecked)
	r.sort()
	return r
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.SinceMS, b.SinceMS))
	})
}
