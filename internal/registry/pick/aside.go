package pick

import (
	"cmp"
	"slices"
	"time"
)

// How long an instance is set aside: the first time, and at most.
const (
	AsideFirst   = time.Second
	AsideLongest = 30 * time.Second
)

// now returns the time since the picker was made; it is never 0.
func (p *Picker) now() int64 { return int64(p.cfg.Now().Sub(p.began)) + 1 }

// isAside reports whether an instance is set aside. It reads the clock only for one that was.
func (p *Picker) isAside(s *state) bool {
	until := s.until.Load()
	return until != 0 && until > p.now()
}

// setAside keeps picks away from an instance for a while, unless half of all instances are set
// aside. A refusal meanwhile changes nothing: its call began before.
func (p *Picker) setAside(s *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready, now := p.ready.Load(), p.now()
	if s.until.Load() > now || !ready.has(s) {
		return
	}
	refusals := s.refusals.Add(1)
	p.aside = slices.DeleteFunc(p.aside, func(other *state) bool { return other.until.Load() <= now })
	if 2*(len(p.aside)+1) > len(ready.all.members) {
		return
	}
	wait := min(AsideFirst<<min(refusals-1, 5), AsideLongest)
	s.until.Store(now + int64(wait))
	p.aside = append(p.aside, s)
}

// takeBack undoes setAside.
func (p *Picker) takeBack(s *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.refusals.Store(0)
	s.until.Store(0)
}

// publish makes a list the one that picks use. In a shorter list fewer instances may be set aside,
// so the ones that would be back soonest are back now.
func (p *Picker) publish(ready *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.aside, func(a, b *state) int { return cmp.Compare(b.until.Load(), a.until.Load()) })
	now, most, kept := p.now(), len(ready.all.members)/2, p.aside[:0]
	for _, s := range p.aside {
		if s.until.Load() > now && ready.has(s) && len(kept) < most {
			kept = append(kept, s)
		} else {
			s.until.Store(0)
		}
	}
	p.aside = kept
	p.ready.Store(ready)
}
