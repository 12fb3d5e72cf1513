package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	lists "github.com/freeslot/freeslot/internal/namelist"
)

const (
	listNote = "step "
	// editEvery is from one edit of a list to the next.
	editEvery = 50 * time.Millisecond
	// listChunk is of uploads, of which one in cutChunk is cut and sent again.
	listChunk, cutChunk = 1 << 20, 4
	// unpublished is how long a ready version may wait for its switch to begin.
	unpublished = 15 * time.Second
	// takenUp is how long after its lease an operation may be there: 10 s, and what a busy machine
	// needs.
	takenUp = 10*time.Second + 20*time.Second
	// liveEntries bounds the expiries of entries.
	liveEntries = 60 * time.Second
)

// listWork is what is done to one list.
type listWork struct {
	*listsBed

	index  uint8
	name   string
	spec   map[string]any
	oracle *listOracle
	random *rand.Rand // of the director

	steps int
	files map[string]*listFile // guarded by mu; by the note of their version
	// hurt: data of the list was lost, so it needs an import. usable is the first version after
	// that.
	hurt, recovering atomic.Bool
	usable           int64
	ending           context.CancelFunc
	loops            sync.WaitGroup

	mu       sync.Mutex
	head     lists.Head            // guarded by mu; the newest that was seen
	births   map[string]int        // guarded by mu; the life of each birth
	versions []*seenVersion        // guarded by mu; in the order in which they were seen
	origins  map[string]lists.Head // guarded by mu; the head that an operation was first seen in
	late     map[string]bool       // guarded by mu; operations that were not taken up
	ended    map[string]bool       // guarded by mu; operations that have left no version
	switches int                   // guarded by mu; how often another version began to serve
}

// seenVersion is a version that control had.
type seenVersion struct {
	lists.Version

	life int
	from int64 // the version that it was made of; -1 is not known
}

func newListWork(b *listsBed, index uint8, name string, members uint32, spec map[string]any) *listWork {
	return &listWork{
		listsBed: b, index: index, name: name, spec: spec, oracle: newListOracle(members), random: b.seedFor(name), files: map[string]*listFile{},
		births: map[string]int{}, origins: map[string]lists.Head{}, late: map[string]bool{}, ended: map[string]bool{},
	}
}

func (w *listWork) path(more string) string { return "/v1/lists/" + w.name + more }

// begin makes the list, and begins to look at it and to edit it.
func (w *listWork) begin() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.ending = cancel
	w.loops.Go(func() { w.witness(ctx) })
	w.recover()
	if w.spec != nil {
		w.loops.Go(func() { w.edit(ctx) })
	}
	w.t.Cleanup(w.stop)
}

// stop may be called twice.
func (w *listWork) stop() {
	w.ending()
	w.loops.Wait()
}

// recover makes the list if it is not there, and imports it until that has succeeded.
func (w *listWork) recover() {
	w.recovering.Store(true)
	defer w.recovering.Store(false)
	ok := w.until(w.patience(), func() bool {
		var is struct{ State string }
		a := w.call(w.anyReplica(w.random.IntN), http.MethodGet, w.path(""), nil, &is)
		if a.code == "not_found" {
			w.oracle.born()
			w.call(w.anyReplica(w.random.IntN), http.MethodPut, w.path(""), orEmpty(w.spec), nil)
			return false
		}
		if a.code != "" {
			return false
		}
		if !w.idle() { // it may wait for clients that cannot load what was lost
			w.call(w.anyReplica(w.random.IntN), http.MethodPost, w.path("/cancel"), map[string]any{"operation": w.seen().Op.ID}, nil)
			return false
		}
		w.hurt.Store(false)
		number := w.imports(listReplace)
		if number == 0 || w.hurt.Load() {
			w.hurt.Store(true)
			return false
		}
		w.usable = number
		return true
	})
	if !ok {
		w.bad("stuck", "list %s could not be imported: %+v", w.name, w.seen())
	}
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func (w *listWork) seen() lists.Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

// idle reports whether nothing runs, but for a compaction, which gives way.
func (w *listWork) idle() bool {
	h := w.seen()
	return h.Birth != "" && (h.Op.ID == "" || h.Op.Kind == lists.OpCompact)
}

// witness looks at the list, and notes what becomes of it.
func (w *listWork) witness(ctx context.Context) {
	tick := time.NewTicker(lookLists)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limit, cancel := context.WithTimeout(ctx, 2*time.Second)
		w.look(limit)
		cancel()
	}
}

func (w *listWork) look(ctx context.Context) {
	h, err := w.control.Head(ctx, w.name)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound { // it was flushed
		w.mu.Lock()
		w.head = lists.Head{}
		w.mu.Unlock()
	}
	if err != nil {
		return
	}
	was := w.seen()
	if h.Op.ID != "" && h.At.Sub(h.Op.Lease) > takenUp {
		w.tookLong(&h)
	}
	if h.Birth == was.Birth && h.Revision == was.Revision && h.Op.ID == was.Op.ID {
		return
	}
	versions, err := w.control.Versions(ctx, w.name)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head = h
	if _, known := w.births[h.Birth]; !known {
		w.births[h.Birth] = w.oracle.life()
	}
	if _, known := w.origins[h.Op.ID]; h.Op.ID != "" && !known {
		w.origins[h.Op.ID] = h
	}
	if was.Birth == h.Birth && h.Serving != nil && (was.Serving == nil || was.Serving.Number != h.Serving.Number) {
		w.switches++
	}
	if was.Birth == h.Birth && was.Op.ID != "" && h.Op.ID == "" && h.State != was.Op.Former && h.State != lists.Active {
		w.bad("state", "list %s is %s after %s, which began in %s", w.name, h.State, was.Op.Kind, was.Op.Former)
	}
	for i := len(versions) - 1; i >= 0; i-- {
		w.note(&versions[i], w.births[h.Birth])
	}
	if was.Op.ID != h.Op.ID && !slices.ContainsFunc(versions, func(v lists.Version) bool { return v.Build == was.Op.ID }) {
		w.ended[was.Op.ID] = true
	}
}

// note keeps a version. The caller holds mu.
func (w *listWork) note(v *lists.Version, life int) {
	for _, s := range w.versions {
		if s.Build == v.Build {
			s.Version = *v
			return
		}
	}
	if w.ended[v.Build] {
		w.bad("lease", "version %d of list %s is there, and its operation had ended without it", v.Number, w.name)
	}
	seen := &seenVersion{*v, life, -1}
	if from, ok := w.origins[v.Build]; ok { // an operation has the id of its build
		seen.from = 0
		if from.Serving != nil {
			seen.from = from.Serving.Number
		}
	}
	w.versions = append(w.versions, seen)
}

// tookLong notes an operation that nobody has taken up, unless control was broken.
func (w *listWork) tookLong(h *lists.Head) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late[h.Op.ID] {
		return
	}
	w.late[h.Op.ID] = true
	w.listsBed.mu.Lock()
	broken := slices.ContainsFunc(w.troubles, func(t *listTrouble) bool {
		return t.what != FaultFreezeHolder && t.what != FaultLoseHolder && t.to > Clock()-takenUp
	})
	w.listsBed.mu.Unlock()
	if !broken {
		w.bad("stuck", "%s of list %s is there %s after its lease", h.Op.Kind, w.name, h.At.Sub(h.Op.Lease))
	}
}

// edit edits the list without pause.
func (w *listWork) edit(ctx context.Context) {
	tick := time.NewTicker(editEvery)
	defer tick.Stop()
	random := w.seedFor(w.name + " edits")
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.send(ctx, random, "edit-"+strconv.Itoa(n), 1+random.IntN(3), func(random *rand.Rand) uint32 { return w.oracle.ids.hot(random.Uint32N(2 * listHot)) })
	}
}

// send sends an edit until it is known what became of it.
func (w *listWork) send(ctx context.Context, random *rand.Rand, id string, n int, pick func(*rand.Rand) uint32) bool {
	changes, entries := w.changes(random, n, pick)
	life, unsure := w.oracle.life(), false
	for ctx.Err() == nil {
		var done struct{ Revision int64 }
		a := w.call(w.anyReplica(random.IntN), http.MethodPost, w.path("/entries"), map[string]any{
			"id": id, "entries": entries, "urgent": true, "author": "faults", "note": "edit",
		}, &done)
		switch {
		case a.code == lost || a.code == "unavailable":
			unsure = true
			pause(ctx, editEvery)
			continue
		case w.oracle.life() != life: // it may be of either
			w.oracle.edited(life, 0, changes)
			w.oracle.edited(w.oracle.life(), 0, changes)
		case a.code == "":
			w.count("edits")
			w.oracle.edited(life, done.Revision, changes)
			return true
		case unsure:
			w.oracle.edited(life, 0, changes)
		}
		return false
	}
	w.oracle.edited(life, 0, changes)
	return false
}

// changes are n random edits.
func (w *listWork) changes(random *rand.Rand, n int, pick func(*rand.Rand) uint32) (map[uint32]listEdit, []lists.Change) {
	edits, entries := map[uint32]listEdit{}, []lists.Change{}
	for len(edits) < n {
		id := pick(random)
		if _, twice := edits[id]; twice {
			continue
		}
		e := listEdit{has: random.IntN(2) == 0}
		if e.has && random.IntN(4) == 0 {
			e.expires = w.soon(random)
		}
		edits[id] = e
		entries = append(entries, lists.Change{Entry: lists.Entry{ID: ListID(id), ExpiresMS: e.expires}, Remove: !e.has})
	}
	return edits, entries
}

func (w *listWork) soon(random *rand.Rand) int64 {
	return time.Now().UnixMilli() + random.Int64N(liveEntries.Milliseconds())
}

// any is an id that is no stranger.
func (w *listWork) any(random *rand.Rand) uint32 {
	return random.Uint32N(w.oracle.ids.Members + w.oracle.ids.late())
}

// step makes the next step of the list.
func (w *listWork) step() {
	if !w.until(w.patience(), func() bool { return w.idle() || w.hurt.Load() }) {
		w.bad("stuck", "list %s is still busy: %+v", w.name, w.seen().Op)
		return
	}
	if w.hurt.Load() {
		w.recover()
		return
	}
	switch w.random.IntN(12) {
	case 0, 1:
		w.imports(listReplace)
	case 2, 3:
		w.imports(listAdd)
	case 4:
		w.imports(listRemove)
	case 5, 6:
		w.rebuild("/expand", map[string]any{})
	case 7:
		if w.stays {
			return
		}
		to := otherServer
		if w.seen().Server == otherServer {
			to = ""
		}
		w.rebuild("/move", map[string]any{"server": to})
	case 8, 9:
		w.rollBack()
	case 10:
		w.session()
	default:
		w.compact()
	}
}

func (w *listWork) nextNote() string {
	w.steps++
	return listNote + strconv.Itoa(w.steps)
}

// file makes the content of an upload.
func (w *listWork) file(mode listMode) *listFile {
	seed, now, ids := w.random.Uint64(), time.Now().UnixMilli(), w.oracle.ids
	expiry := func(random *rand.Rand, id uint32) int64 {
		if !ids.expiring(id) {
			return 0
		}
		return now + random.Int64N(liveEntries.Milliseconds())
	}
	return &listFile{mode, func(add func(id uint32, expires int64)) {
		random := rand.New(rand.NewPCG(seed, 1))
		if mode != listReplace {
			for range 1 + ids.Members/400 {
				id := w.any(random)
				add(id, expiry(random, id))
			}
			return
		}
		hole := 5 + random.Uint32N(20)
		for id := range ids.Members + ids.late()/2 {
			if id%hole != 0 {
				add(id, expiry(random, id))
			}
		}
		for range 100 { // of those that are there twice the last one holds
			id := random.Uint32N(ids.Members)
			add(id, expiry(random, id))
		}
	}}
}

// imports builds a version of a file and has it serve. It returns its number, or 0.
func (w *listWork) imports(mode listMode) int64 {
	since, note, file := Clock(), w.nextNote(), w.file(mode)
	w.files[note] = file
	var text bytes.Buffer
	file.entries(func(id uint32, expires int64) {
		text.WriteString(ListID(id))
		if expires != 0 && mode != listRemove {
			text.WriteString("," + strconv.FormatInt(expires, 10))
		}
		text.WriteByte('\n')
	})
	replica, upload := w.anyReplica(w.random.IntN), struct{ ID string }{}
	a := w.call(replica, http.MethodPost, w.path("/uploads"), map[string]any{"mode": mode, "switch": true, "author": "faults", "note": note}, &upload)
	if a.code != "" {
		w.failed(since, "%s of list %s: upload: %s", mode, w.name, a)
		return 0
	}
	path, data := "/v1/list-uploads/"+upload.ID, text.Bytes()
	if a := w.upload(replica, path, data); a.code != "" {
		w.failed(since, "%s of list %s: chunk: %s", mode, w.name, a)
		return 0
	}
	if a := w.persist(replica, http.MethodPost, path+"/commit", func() any { return map[string]any{"bytes": len(data)} }); a.code != "" {
		w.failed(since, "%s of list %s: commit: %s", mode, w.name, a)
		return 0
	}
	return w.settle(since, note, string(mode), func() string {
		var is struct{ State, Why string }
		if a := w.call(replica, http.MethodGet, path, nil, &is); a.code != "" && a.code != lost {
			return a.String()
		}
		if is.State == "failed" {
			return is.Why
		}
		return ""
	})
}

// persist repeats a call to one replica until that answers.
func (w *listWork) persist(replica, method, path string, body func() any) (a listReply) {
	w.until(w.patience(), func() bool {
		a = w.call(replica, method, path, body(), nil)
		return a.code != lost
	})
	return a
}

// upload sends a file in chunks. Some of them are cut, and all can be sent twice.
func (w *listWork) upload(replica, path string, data []byte) (a listReply) {
	for offset := 0; offset < len(data); {
		chunk := data[offset:min(offset+listChunk, len(data))]
		to := fmt.Sprintf("%s?offset=%d&crc32c=%08x", path, offset, crc32.Checksum(chunk, crc32.MakeTable(crc32.Castagnoli)))
		if w.random.IntN(cutChunk) == 0 {
			w.count("chunks cut")
			w.call(replica, http.MethodPut, to, &cutReader{chunk[:w.random.IntN(len(chunk))]}, nil)
		}
		if a = w.persist(replica, http.MethodPut, to, func() any { return bytes.NewReader(chunk) }); a.code != "" {
			return a
		}
		if w.random.IntN(cutChunk) == 0 {
			w.count("chunks repeated")
			continue // once more
		}
		offset += len(chunk)
	}
	return a
}

// cutReader is a body whose sender goes away.
type cutReader struct{ rest []byte }

var errCut = errors.New("the sender goes away")

func (r *cutReader) Read(p []byte) (n int, err error) {
	if n = copy(p, r.rest); n == 0 {
		return 0, errCut
	}
	r.rest = r.rest[n:]
	return n, nil
}

// version is what is known of the version with a note, in the life of now.
func (w *listWork) version(note string) *lists.Version {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.versions {
		if v.Note == note && v.life == w.births[w.head.Birth] {
			return &v.Version
		}
	}
	return nil
}

// settle waits until the version with a note serves, or its operation has failed: failure says why,
// if it is known. It returns the number of the version, or 0.
func (w *listWork) settle(since time.Duration, note, what string, failure func() string) (number int64) {
	why, ready := "", time.Duration(0)
	over := w.until(w.patience(), func() bool {
		h, v := w.seen(), w.version(note)
		switch {
		case v == nil:
			why = failure()
			return why != "" || w.hurt.Load()
		case h.Serving != nil && h.Serving.Number == v.Number && h.Op.ID == "":
			number = v.Number
			return true
		case h.Op.ID != "" || w.hurt.Load():
			ready = 0
			return w.hurt.Load()
		case ready == 0:
			ready = Clock()
		}
		why = fmt.Sprintf("version %d is ready, and nobody switches to it: %q %q", v.Number, v.Doubt, v.Damaged)
		return Clock()-ready > unpublished
	})
	switch {
	case !over:
		w.bad("stuck", "%s of list %s has not ended: %+v", what, w.name, w.seen())
	case number == 0:
		w.failed(since, "%s of list %s: %s", what, w.name, why)
	default:
		w.count(what)
		w.t.Logf("%s: %s of list %s is version %d after %s", Clock(), what, w.name, number, Clock()-since)
	}
	return number
}

// gone reports why an operation has ended that has left no version.
func (w *listWork) gone(id string) func() string {
	seen := false
	return func() string {
		h := w.seen()
		switch {
		case h.Op.ID == id:
			seen = true
		case seen || h.Number > 0 && h.Op.ID == "":
			limit, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
			defer cancel()
			if w.look(limit); w.seen().Op.ID != id {
				return "its operation is gone"
			}
		}
		return ""
	}
}

// rebuild expands or moves the list.
func (w *listWork) rebuild(path string, body map[string]any) {
	since, note := Clock(), w.nextNote()
	w.files[note] = &listFile{mode: listAdd}
	body["author"], body["note"] = "faults", note
	var started struct{ Operation struct{ ID string } }
	if a := w.call(w.anyReplica(w.random.IntN), http.MethodPost, w.path(path), body, &started); a.code != "" {
		w.failed(since, "%s of list %s: %s", path, w.name, a)
		return
	}
	w.settle(since, note, path[1:], w.gone(started.Operation.ID))
}

// rollBack switches to a version that is there.
func (w *listWork) rollBack() {
	since, h := Clock(), w.seen()
	limit, cancel := context.WithTimeout(w.t.Context(), listCall)
	defer cancel()
	versions, err := w.control.Versions(limit, w.name)
	if err != nil || h.Serving == nil {
		return
	}
	versions = slices.DeleteFunc(versions, func(v lists.Version) bool {
		return v.Number < w.usable || v.Number == h.Serving.Number || h.Target(&v) != nil
	})
	if len(versions) == 0 {
		return
	}
	to := versions[w.random.IntN(len(versions))].Number
	var started struct{ Operation struct{ ID string } }
	a := w.call(w.anyReplica(w.random.IntN), http.MethodPost, w.path("/switch"), map[string]any{
		"version": to, "serving": h.Serving.Number, "now": w.random.IntN(2) == 0, "author": "faults",
	}, &started)
	if a.code != "" {
		if a.code != "not_found" { // it was dropped meanwhile
			w.failed(since, "switch of list %s to %d: %s", w.name, to, a)
		}
		return
	}
	gone, why := w.gone(started.Operation.ID), ""
	w.until(w.patience(), func() bool {
		why = gone()
		return why != "" || w.hurt.Load()
	})
	if is := w.seen().Serving; is == nil || is.Number != to {
		w.failed(since, "switch of list %s to %d: %+v serves", w.name, to, is)
		return
	}
	w.count("switch")
}

// session makes an edit in two parts.
func (w *listWork) session() {
	since, life, replica := Clock(), w.oracle.life(), w.anyReplica(w.random.IntN)
	var session struct{ ID string }
	if a := w.call(replica, http.MethodPost, w.path("/sessions"), map[string]any{}, &session); a.code != "" {
		w.failed(since, "session of list %s: %s", w.name, a)
		return
	}
	changes, entries := w.changes(w.random, 100, w.any)
	path := w.path("/sessions/" + session.ID)
	var done struct{ Revision int64 }
	a := w.call(replica, http.MethodPost, path, map[string]any{"entries": entries}, nil)
	if a.code == "" {
		w.until(w.patience(), func() bool {
			a = w.call(w.anyReplica(w.random.IntN), http.MethodPost, path+"/commit", map[string]any{}, &done)
			return a.code != lost
		})
	}
	if a.code != "" || life != w.oracle.life() {
		w.oracle.edited(life, 0, changes)
		w.call(w.anyReplica(w.random.IntN), http.MethodDelete, path, nil, nil) // else it lasts ten minutes
		w.failed(since, "session of list %s: %s", w.name, a)
		return
	}
	w.count("session")
	w.oracle.edited(life, done.Revision, changes)
}

// compact makes so many edits that compaction begins, and waits for its switch.
func (w *listWork) compact() {
	since, h := Clock(), w.seen()
	if h.Serving == nil {
		return
	}
	for n := h.Edited - h.Serving.Edited; n < lists.CompactFrom; n += lists.EditEntries {
		if !w.send(w.t.Context(), w.random, w.nextNote(), lists.EditEntries, w.any) {
			return
		}
	}
	over := w.until(w.patience(), func() bool {
		is := w.seen()
		return w.hurt.Load() || is.Birth != h.Birth || is.Serving != nil && is.Serving.Number > h.Serving.Number && is.Op.ID == ""
	})
	if !over {
		w.bad("stuck", "compaction of list %s: %d edits, operation %+v", w.name, w.seen().Edited, w.seen().Op)
		return
	}
	if v := w.seen().Serving; v != nil && strings.HasPrefix(v.Author, "compaction") {
		w.count("compact")
		return
	}
	w.failed(since, "compaction of list %s", w.name)
}

// build has the oracle make all versions. Afterwards it can judge.
func (w *listWork) build() {
	w.oracle.sort()
	for _, v := range w.versions {
		file := w.files[v.Note]
		if strings.HasPrefix(v.Author, "compaction") {
			file = &listFile{mode: listAdd}
		}
		if file == nil || v.from < 0 {
			text, _ := json.Marshal(v.Version) // it is of JSON
			w.bad("version", "of list %s nobody knows what version %d is of, made of %d: %s", w.name, v.Number, v.from, text)
			continue
		}
		if err := w.oracle.build(v.life, v.Number, v.Base, v.from, file); err != nil {
			w.bad("version", "%v", err)
		}
	}
}
