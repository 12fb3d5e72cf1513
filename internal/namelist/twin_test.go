package namelist

import (
	"maps"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
)

// twin says what a list must be after each call, in the plainest way: it keeps all edits for ever,
// and makes what a version answers out of them each time.
type twin struct {
	exists             bool
	lives              int
	state              State
	serving, next      int64
	revision, number   int64
	op                 *twinOp
	versions           map[int64]*twinVersion
	edits              []twinEdit // of this life
	trimmed            int        // of edits
	staged             map[string]Change
	done               map[string]int64 // revisions by ids of edits
	limit, urgent, log int
}

type twinOp struct {
	id, holder string
	kind       OpKind
	number     int64
	base       int64
	content    map[string]bool // of the version that it builds
	former     State
	left       time.Duration
	reserved   Reservation
}

type twinVersion struct {
	base           int64
	content        map[string]bool
	doubt, damaged bool
	stopped        bool
}

type twinEdit struct {
	revision int64
	changes  []Change
}

// holds are the ids of a version, with all edits behind its base.
func (w *twin) holds(v *twinVersion) map[string]bool {
	out := maps.Clone(v.content)
	for _, e := range w.edits {
		if e.revision <= v.base {
			continue
		}
		for _, c := range e.changes {
			delete(out, c.ID)
			if !c.Remove {
				out[c.ID] = true
			}
		}
	}
	return out
}

// entries are those of edits behind a revision.
func (w *twin) entries(after int64) (n int) {
	for _, e := range w.edits {
		if e.revision > after {
			n += len(e.changes)
		}
	}
	return n
}

func (w *twin) floor() int64 {
	if w.trimmed == 0 {
		return 0
	}
	return w.edits[w.trimmed-1].revision
}

// base is that of the serving version.
func (w *twin) base() int64 {
	if v := w.versions[w.serving]; v != nil {
		return v.base
	}
	return 0
}

// The codes.
const (
	done     = freeslot.Code("")
	absent   = freeslot.CodeNotFound
	conflict = freeslot.CodeConflict
	over     = freeslot.CodeOverloaded
)

// allowed is section "states" of the design once more.
func (w *twin) allowed(what string) bool {
	switch w.state {
	case Draft:
		return slices.Contains([]string{"import", "edit", "switch", "set", "delete"}, what)
	case Active:
		return what != "unfreeze"
	case Editing, Importing, Expanding, Switching:
		return what == "urgent" || what == "set"
	case Frozen:
		return slices.Contains([]string{"unfreeze", "delete"}, what)
	default:
		return false
	}
}

func (w *twin) idle(state State) {
	w.state, w.op, w.next, w.staged = state, nil, 0, make(map[string]Change)
	w.revision++
}

func (w *twin) create() freeslot.Code {
	if w.exists {
		return conflict
	}
	w.exists, w.serving, w.trimmed, w.edits = true, 0, 0, nil
	w.versions, w.done = make(map[int64]*twinVersion), make(map[string]int64)
	w.lives++
	w.idle(Draft)
	return done
}

// simple is freeze, unfreeze, set and delete.
func (w *twin) simple(what string, serving int64) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case !w.allowed(what), serving != AnyVersion && serving != w.serving:
		return conflict
	}
	switch what {
	case "freeze":
		w.idle(Frozen)
	case "unfreeze":
		w.idle(Active)
	case "delete":
		w.idle(Deleting)
	default:
		w.revision++
	}
	return done
}

func (w *twin) finish() freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case w.state != Deleting:
		return conflict
	}
	w.exists = false
	w.revision++
	return done
}

func (w *twin) target(n int64) freeslot.Code {
	v := w.versions[n]
	switch {
	case v == nil:
		return absent
	case v.doubt, v.damaged, v.base < w.floor():
		return conflict
	}
	return done
}

// begin is without the id, which Redis gives.
func (w *twin) begin(kind OpKind, target, serving int64) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case !w.allowed(string(kind)) || kind == OpCompact && w.op != nil:
		return conflict
	case serving != AnyVersion && serving != w.serving:
		return conflict
	}
	op := &twinOp{kind: kind, former: w.state, base: w.revision, left: Lease, holder: "r1"}
	state := w.state
	switch kind {
	case OpSwitch:
		if code := w.target(target); code != done {
			return code
		}
		op.number, state = target, Switching
	case OpEdit:
		op.left, state = SessionLease, Editing
	case OpImport:
		op.content = map[string]bool{"a": true, "b": true}
		state = Importing
	default:
		op.content = w.holds(w.versions[w.serving])
		if kind != OpCompact {
			state = Expanding
		}
	}
	if op.number == 0 && kind != OpEdit {
		w.number++
		op.number = w.number
	}
	w.idle(state)
	w.op = op
	return done
}

func (w *twin) held(op Operation) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case w.op == nil || w.op.id != op.ID || w.op.holder != op.Holder:
		return conflict
	}
	return done
}

func (w *twin) renew(op Operation) freeslot.Code {
	if code := w.held(op); code != done {
		return code
	}
	w.op.left = Lease
	if w.op.kind == OpEdit {
		w.op.left = SessionLease
	}
	return done
}

func (w *twin) reserve(op Operation, r Reservation) freeslot.Code {
	code := w.held(op)
	if code == done {
		w.op.reserved = r
	}
	return code
}

func (w *twin) take(id, holder string) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case w.op == nil || w.op.id != id || w.op.left > 0:
		return conflict
	}
	w.op.holder, w.op.left = holder, Lease
	w.revision++
	return done
}

func (w *twin) cancel(id string) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case w.op == nil || w.op.id != id:
		return conflict
	}
	w.idle(w.op.former)
	return done
}

func (w *twin) put(op Operation, doubt, ends bool) freeslot.Code {
	if code := w.held(op); code != done {
		return code
	}
	if w.op.content == nil {
		return freeslot.CodeInvalidArgument
	}
	w.versions[w.op.number] = &twinVersion{base: w.op.base, content: w.op.content, doubt: doubt}
	w.op.reserved.Bytes = 0
	if ends {
		w.idle(w.op.former)
	}
	return done
}

func (w *twin) switches(op Operation, prepare bool) freeslot.Code {
	if code := w.held(op); code != done {
		return code
	}
	if w.op.kind != OpSwitch && w.op.kind != OpCompact {
		return conflict
	}
	if code := w.target(w.op.number); code != done {
		return code
	}
	if prepare {
		w.next = w.op.number
		w.revision++
		return done
	}
	if before := w.versions[w.serving]; before != nil {
		before.stopped = true
	}
	w.serving = w.op.number
	w.versions[w.serving].stopped = false
	w.idle(Active)
	return done
}

func (w *twin) amend(n int64, what string) freeslot.Code {
	v := w.versions[n]
	switch {
	case !w.exists, v == nil:
		return absent
	case what == "accept" && !w.allowed("set"):
		return conflict
	case what == "drop":
		if n == w.serving || n == w.next || w.op != nil && w.op.number == n {
			return conflict
		}
		delete(w.versions, n)
	case what == "accept" && v.doubt:
		v.doubt = false
	case what == "damage" && !v.damaged:
		v.damaged = true
	default:
		return done // it is so already
	}
	w.revision++
	return done
}

func (w *twin) append(id string, changes []Change, limit int) freeslot.Code {
	if w.entries(w.base())+len(changes) > limit {
		return over
	}
	w.revision++
	w.edits = append(w.edits, twinEdit{w.revision, changes})
	for w.entries(w.floor()) > w.log {
		w.trimmed++
	}
	if id != "" {
		w.done[id] = w.revision
	}
	return done
}

func (w *twin) edit(id string, changes []Change, urgent bool) (code freeslot.Code, revision int64) {
	if !w.exists {
		return absent, 0
	}
	if at := w.done[id]; at != 0 {
		return done, at
	}
	what, limit := "ordinary", w.limit
	if urgent {
		what, limit = "urgent", w.urgent
	}
	if !w.allowed(what) {
		return conflict, 0
	}
	return w.append(id, changes, limit), w.revision
}

func (w *twin) session(id string) freeslot.Code {
	switch {
	case !w.exists:
		return absent
	case w.op == nil || w.op.kind != OpEdit || w.op.id != id || w.op.left <= 0:
		return conflict
	}
	return done
}

func (w *twin) stage(id string, changes []Change) freeslot.Code {
	if code := w.session(id); code != done {
		return code
	}
	all := maps.Clone(w.staged)
	for _, c := range changes {
		all[c.ID] = c
	}
	if len(all) > w.limit {
		return over
	}
	w.staged, w.op.left = all, SessionLease
	return done
}

func (w *twin) commit(id string) (code freeslot.Code, revision int64) {
	if at := w.done[id]; w.exists && at != 0 {
		return done, at
	}
	if code := w.session(id); code != done {
		return code, 0
	}
	former, at := w.op.former, w.revision
	code = w.append(id, slices.Collect(maps.Values(w.staged)), w.limit)
	if code == done {
		w.idle(former)
		w.revision = at + 1 // one for both
	}
	return code, w.revision
}
