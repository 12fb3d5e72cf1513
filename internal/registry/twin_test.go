package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// twin says what the scripts must do to one service, in the plainest way. Times are Redis' ms.
type twin struct {
	at        int64
	instances map[string]*twinInstance
	overrides map[string]*Override
	changes   map[string]int64
	replaced  map[string]bool // id and epoch
	revision  int64
	why       string

	cleaned, grace, guardUntil, guardCut, guardDone int64 // 0 is none
}

type twinInstance struct {
	epoch, content, host string
	interval             int64 // 0 does not beat
	beat                 int64
	registered           int64
	replaced             string
	revision             int64
	checked, checkedWhy  string
	failingSince         int64
	checkedAt            int64 // of a failure
}

func newTwin() *twin {
	return &twin{instances: make(map[string]*twinInstance), overrides: make(map[string]*Override), changes: make(map[string]int64), replaced: make(map[string]bool)}
}

func (w *twin) changed(ids ...string) {
	w.revision++
	for _, id := range ids {
		w.changes[id] = w.revision
		if i := w.instances[id]; i != nil {
			i.revision = w.revision
		}
	}
	w.why = ""
}

func (w *twin) register(id, epoch, replaces, host, content string, since, interval int64) (code int) {
	old := w.instances[id]
	next := &twinInstance{epoch: epoch, content: content, host: host, interval: interval, beat: w.at, registered: cmp.Or(since, w.at)}
	switch {
	case old == nil && w.replaced[id+" "+epoch]:
		return codeHolder
	case old == nil:
		if len(w.instances) == 0 {
			w.cleaned = w.at
		}
	case old.epoch != epoch:
		silent := old.interval > 0 && max(w.at-old.beat, 0) >= 3*old.interval
		if replaces != old.epoch || old.replaced == epoch || old.host != host && !silent && since <= old.registered {
			return codeHolder
		}
		next.registered, next.replaced = max(next.registered, w.at, old.registered+1), old.epoch
		w.replaced[id+" "+old.epoch] = old.epoch != copyEpoch
	case old.content == content:
		old.beat = w.at
		return codeSame
	default:
		next.registered, next.replaced, next.checked, next.checkedWhy, next.failingSince, next.checkedAt = old.registered, old.replaced, old.checked, old.checkedWhy, old.failingSince, old.checkedAt
	}
	w.instances[id] = next
	if o := w.overrides[id]; o != nil {
		o.GoneMS = 0
	}
	w.changed(id)
	return codeDone
}

func (w *twin) heartbeat(id, epoch, content string) (code int) {
	i := w.instances[id]
	switch {
	case i == nil:
		return codeGone
	case i.epoch != epoch:
		return codeHolder
	}
	i.beat = w.at
	if i.content != content {
		return codeDiffer
	}
	return codeDone
}

func (w *twin) deregister(id, epoch string) (code int) {
	i := w.instances[id]
	switch {
	case i == nil:
		return codeGone
	case epoch != "" && i.epoch != epoch:
		return codeHolder
	}
	w.remove(WhyDeregistered, id)
	return codeDone
}

func (w *twin) remove(why string, ids ...string) {
	for _, id := range ids {
		delete(w.instances, id)
		if o := w.overrides[id]; o != nil {
			o.GoneMS = w.at
		}
	}
	w.changed(ids...)
	if len(w.instances) == 0 {
		w.why = why
		w.guardUntil, w.guardCut, w.guardDone = 0, 0, 0
	}
}

func (w *twin) verdict(id, epoch string, passing bool, why string) (code int) {
	i, checked := w.instances[id], "failing"
	if passing {
		checked, why = "passing", ""
	}
	switch {
	case i == nil:
		return codeGone
	case i.epoch != epoch:
		return codeHolder
	case passing && i.checked == checked:
		return codeSame
	case passing:
		i.failingSince, i.checkedAt = 0, 0
	default:
		if i.checked != checked || !w.fresh(i) {
			i.failingSince = w.at
		}
		i.checkedAt = w.at
		if i.checked == checked && i.checkedWhy == why {
			return codeSame
		}
	}
	i.checked, i.checkedWhy = checked, why
	w.changed(id)
	return codeDone
}

func (w *twin) override(id string, o *Override, lasts time.Duration) (code int) {
	i, old := w.instances[id], w.overrides[id]
	switch {
	case o == nil && old == nil, o != nil && i == nil && old == nil:
		return codeGone
	case o == nil:
		delete(w.overrides, id)
	default:
		set := &Override{Author: o.Author, AtMS: w.at}
		if lasts > 0 {
			set.UntilMS = w.at + lasts.Milliseconds()
		}
		if i == nil {
			set.GoneMS = old.GoneMS
		}
		w.overrides[id] = set
	}
	if i != nil {
		w.changed(id)
	}
	return codeDone
}

// fresh reports whether the failure of its checks was written in the last 45 s.
func (w *twin) fresh(i *twinInstance) bool { return w.at >= i.checkedAt && w.at-i.checkedAt <= 45_000 }

// since is from when on the instance counts as silent, or as failing if it does not beat.
func (w *twin) since(i *twinInstance) (at int64, ok bool) {
	if i.interval > 0 {
		return i.beat, true
	}
	return i.failingSince, i.checked == "failing" && w.fresh(i)
}

// silent are those that are silent since then or longer, and not released from the guard.
func (w *twin) silent(since int64) (ids []string) {
	for id, i := range w.instances {
		if at, ok := w.since(i); ok && at <= since && (w.guardDone == 0 || at > w.guardDone) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *twin) cleanup(limit, every int64) (removed int, guarded bool) {
	every = min(every, limit/4)
	if w.cleaned != 0 && w.at >= w.cleaned && w.at-w.cleaned < every {
		return 0, w.guardUntil != 0
	}
	if len(w.instances) == 0 {
		return 0, false
	}
	if away := w.at - w.cleaned; w.cleaned == 0 || max(away, -away) > max(limit/2, 5_000) {
		w.grace = w.at + limit
	}
	w.grace = min(w.grace, w.at+limit)
	w.cleaned = w.at
	for _, i := range w.instances {
		i.beat = min(i.beat, w.at)
	}
	near := w.at - limit*3/4
	many := func() bool { n := len(w.silent(near)); return n > 1 && n*100 > 30*len(w.instances) }
	if w.guardDone > w.at {
		w.guardDone = 0
	}
	w.guardUntil = min(w.guardUntil, w.at+2*limit)
	if w.guardUntil != 0 && (w.at >= w.guardUntil || !many()) {
		w.guardDone, w.guardUntil, w.guardCut = w.guardCut, 0, 0
	}
	grace := w.grace > w.at
	if !grace {
		w.grace = 0 // it is over, also where the clock goes back later
	}
	if w.guardUntil == 0 && !grace && many() && len(w.silent(w.at-limit)) > 0 {
		w.guardUntil = w.at + 2*limit
		for id, i := range w.instances {
			if at, ok := w.since(i); ok && at <= near {
				w.guardCut = max(w.guardCut, at)
			}
			_ = id
		}
	}
	for _, beats := range []bool{true, false} {
		var ids []string
		for id, i := range w.instances {
			at, ok := w.since(i)
			if ok && !grace && i.interval > 0 == beats && at <= w.at-limit && (w.guardUntil == 0 || at <= w.guardDone) {
				ids = append(ids, id)
			}
		}
		if len(ids) > 0 {
			removed += len(ids)
			why := WhyExpired
			if !beats {
				why = WhyRemoved
			}
			w.remove(why, ids...)
		}
	}
	var ended []string
	for _, id := range slices.Sorted(maps.Keys(w.overrides)) {
		o := w.overrides[id]
		over := o.UntilMS != 0 && o.UntilMS <= w.at
		if len(w.instances) > 0 && (over || o.GoneMS != 0 && o.GoneMS <= w.at-7*24*3600_000) {
			delete(w.overrides, id)
			if over && w.instances[id] != nil {
				ended = append(ended, id)
			}
		}
	}
	if len(ended) > 0 {
		w.changed(ended...)
	}
	return removed, w.guardUntil != 0
}

// pass makes everything older, as rig.pass does.
func (w *twin) pass(d time.Duration) {
	ms := d.Milliseconds()
	for _, i := range w.instances {
		i.beat -= ms
		i.registered -= ms
		if i.failingSince != 0 {
			i.failingSince -= ms
			i.checkedAt -= ms
		}
	}
	for _, at := range []*int64{&w.cleaned, &w.grace, &w.guardUntil, &w.guardCut, &w.guardDone} {
		if *at != 0 {
			*at -= ms
		}
	}
	for _, o := range w.overrides {
		for _, at := range []*int64{&o.AtMS, &o.UntilMS, &o.GoneMS} {
			if *at != 0 {
				*at -= ms
			}
		}
	}
}
