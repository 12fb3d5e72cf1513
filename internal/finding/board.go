package finding

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// lookTimeout bounds one look at all sources.
	lookTimeout = 2 * time.Second
	// fresh is how long a look is answered again, so that many callers cost no more than one.
	fresh = 2 * time.Second
	// watchInterval is how often sources in memory are looked at.
	watchInterval = 5 * time.Second
)

// Report is the answer of one look.
type Report struct {
	AtMS     int64     `json:"at_ms" doc:"When the look ended, in milliseconds since 1970, by the replica's clock."`
	Findings []Finding `json:"findings" doc:"The critical ones first, then the oldest."`
	// Unknown lists the sources that could not say.
	Unknown []string `json:"unknown,omitempty" doc:"The parts that could not say in time whether something is wrong; what they said before is left out."`
}

// Board asks sources what is wrong. It is safe for concurrent use.
type Board struct {
	sources []Source
	log     *zap.Logger

	ctx    context.Context
	cancel context.CancelFunc
	start  sync.Once
	done   chan struct{}

	busy   chan struct{} // holds a token during a look, which guards the fields that follow
	parts  []part        // of the sources, in their order
	report Report
	until  time.Time // the report is answered again until then
}

// part is what a source said last.
type part struct {
	findings []Finding
	since    map[string]int64 // by the id of each finding
	unknown  bool
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
		b.look(func(s *Source) bool { return s.Memory })
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
func (b *Board) Look() Report {
	b.busy <- struct{}{}
	defer func() { <-b.busy }()
	if now := time.Now(); now.After(b.until) {
		b.look(func(*Source) bool { return true })
		b.report, b.until = b.sum(), time.Now().Add(fresh)
	}
	return b.report
}

// look asks the sources for which take is true, at the same time. The caller holds busy.
func (b *Board) look(take func(s *Source) bool) {
	ctx, cancel := context.WithTimeout(b.ctx, lookTimeout)
	defer cancel()
	var running sync.WaitGroup
	for i := range b.sources {
		if s := &b.sources[i]; take(s) {
			running.Go(func() { b.parts[i].ask(ctx, s, b.log) })
		}
	}
	running.Wait()
}

func (p *part) ask(ctx context.Context, s *Source, log *zap.Logger) {
	found, err := s.Look(ctx)
	if p.unknown = err != nil; p.unknown {
		log.Debug("findings.unknown", zap.String("source", s.Name), zap.Error(err))
		return // since when its findings hold is kept: the source may say the same again
	}
	now, since := time.Now().UnixMilli(), make(map[string]int64, len(found))
	for i := range found {
		f := &found[i]
		f.SinceMS = cmp.Or(f.SinceMS, p.since[f.ID], now)
		f.Names = f.Names[:min(len(f.Names), MaxNames)]
		since[f.ID] = f.SinceMS
	}
	p.findings, p.since = found, since
}

// sum returns the report of what the sources said last. The caller holds busy.
func (b *Board) sum() Report {
	r := Report{AtMS: time.Now().UnixMilli(), Findings: []Finding{}}
	for i := range b.parts {
		if b.parts[i].unknown {
			r.Unknown = append(r.Unknown, b.sources[i].Name)
			continue
		}
		r.Findings = append(r.Findings, b.parts[i].findings...)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.SinceMS, b.SinceMS))
	})
	return r
}
