package faults

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ListVerdict is the answer that a peer got, by the numbers of package namelist.
type ListVerdict uint8

// The verdicts.
const (
	ListUnknown ListVerdict = iota
	ListYes
	ListNo
)

// ListAnswer is one answer to a peer, in the form of its log.
type ListAnswer struct {
	// At is the time of the question, by Clock.
	At                time.Duration
	Took              time.Duration // in whole milliseconds
	ID                uint32
	Version, Revision uint32
	List              uint8 // its index in the run
	Verdict           ListVerdict
	Source, Reason    uint8 // by the numbers of package namelist
}

// ListAnswerBytes is the length of an answer in a log.
const ListAnswerBytes = 28

// Append adds the answer to a log.
func (a *ListAnswer) Append(log []byte) []byte {
	log = binary.LittleEndian.AppendUint64(log, uint64(a.At))
	for _, n := range []uint32{uint32(a.Took.Milliseconds()), a.ID, a.Version, a.Revision} {
		log = binary.LittleEndian.AppendUint32(log, n)
	}
	return append(log, a.List, byte(a.Verdict), a.Source, a.Reason)
}

// readListAnswer reads the answer at the beginning of a log.
func readListAnswer(log []byte) (a ListAnswer) {
	n := binary.LittleEndian
	a.At, a.Took = time.Duration(n.Uint64(log)), time.Duration(n.Uint32(log[8:]))*time.Millisecond
	a.ID, a.Version, a.Revision = n.Uint32(log[12:]), n.Uint32(log[16:]), n.Uint32(log[20:])
	a.List, a.Verdict, a.Source, a.Reason = log[24], ListVerdict(log[25]), log[26], log[27]
	return a
}

// ListIDs describes the ids of a list: the members of its first file, then a quarter as many that
// come later, and then as many strangers.
type ListIDs struct{ Members uint32 }

const (
	// listHot is the number of ids of each of the first two kinds that are edited, and asked in
	// every other check.
	listHot = 1000
	// expiringStride: one in this many hot ids has an expiry, and of the others about 4,000 in all.
	expiringStride = 16
)

func (l ListIDs) late() uint32 { return l.Members / 4 }

// All returns the number of ids, with the strangers.
func (l ListIDs) All() uint32 { return l.Members + 2*l.late() }

// Pick returns an id to ask for.
func (l ListIDs) Pick(random func(n uint32) uint32) uint32 {
	if random(2) == 0 {
		return random(l.All())
	}
	return l.hot(random(2 * listHot))
}

func (l ListIDs) hot(i uint32) uint32 {
	if i < listHot {
		return i
	}
	return l.Members + i - listHot
}

// expiring reports whether entries of an id have an expiry.
func (l ListIDs) expiring(id uint32) bool {
	if id < listHot {
		return id%expiringStride == 1
	}
	return id%max(expiringStride, l.Members/4000) == 1
}

// ListID returns the name of an id: 16 hex digits that look like random ones.
func ListID(id uint32) string {
	x := (uint64(id) + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return fmt.Sprintf("%016x", x^x>>31)
}

// listMode tells what an import does with the entries that a list has.
type listMode string

const (
	listReplace listMode = "replace"
	listAdd     listMode = "add"
	listRemove  listMode = "remove"
)

// listFile is the content of an upload or, with the mode add and no entries, of a rebuild.
type listFile struct {
	mode listMode
	// entries calls add for each line. expires is Unix ms; 0 is never.
	entries func(add func(id uint32, expires int64))
}

// listVersion holds what a version must contain.
type listVersion struct {
	base    int64
	has     []uint64         // a bit for each id
	expires map[uint32]int64 // Unix ms
}

// listEdit is the change of one id.
type listEdit struct {
	revision int64
	has      bool
	expires  int64
}

// listLife is a list from its creation until control loses it.
type listLife struct {
	begin    time.Duration // the time of its creation
	versions map[int64]*listVersion
	edits    map[uint32][]listEdit // in the order of their revisions once sorted
	// doubtful holds the ids of edits that may have been done or not.
	doubtful map[uint32]bool
}

// listOracle knows what a list contains at each version and revision.
type listOracle struct {
	ids ListIDs
	// epoch is the Unix time at the zero of Clock, in ms.
	epoch int64

	mu    sync.Mutex
	lives []*listLife // guarded by mu
}

func newListOracle(members uint32) *listOracle {
	return &listOracle{ids: ListIDs{members}, epoch: time.Now().UnixMilli() - Clock().Milliseconds()}
}

// born begins a life.
func (o *listOracle) born() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lives = append(o.lives, &listLife{
		begin: Clock(), versions: map[int64]*listVersion{}, edits: map[uint32][]listEdit{}, doubtful: map[uint32]bool{},
	})
}

// life returns the newest life, and its number; -1 is none.
func (o *listOracle) life() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lives) - 1
}

// edited records edits of a life; without a revision it is not known whether they were done.
func (o *listOracle) edited(life int, revision int64, edits map[uint32]listEdit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, e := range edits {
		if revision == 0 {
			o.lives[life].doubtful[id] = true
			continue
		}
		e.revision = revision
		o.lives[life].edits[id] = append(o.lives[life].edits[id], e)
	}
}

// sort must be called before any question.
func (o *listOracle) sort() {
	for _, l := range o.lives {
		for _, edits := range l.edits {
			slices.SortFunc(edits, func(a, b listEdit) int { return cmp.Compare(a.revision, b.revision) })
		}
	}
}

// entry returns what a version and the edits up to a revision say about an id.
func (l *listLife) entry(v *listVersion, id uint32, revision int64) (has bool, expires int64) {
	has, expires = v.has[id/64]>>(id%64)&1 == 1, v.expires[id]
	for _, e := range l.edits[id] {
		if e.revision > v.base && e.revision <= revision {
			has, expires = e.has, e.expires
		}
	}
	return has, expires
}

// build records a version of a life: the content of from, with its edits up to base, and the file.
// Without from it begins empty. The oracle must be sorted.
func (o *listOracle) build(life int, number, base, from int64, file *listFile) error {
	l := o.lives[life]
	v := &listVersion{base: base, has: make([]uint64, o.ids.All()/64+1), expires: map[uint32]int64{}}
	put := func(id uint32, has bool, expires int64) {
		v.has[id/64] &^= 1 << (id % 64)
		delete(v.expires, id)
		if has {
			v.has[id/64] |= 1 << (id % 64)
			if expires != 0 {
				v.expires[id] = expires
			}
		}
	}
	if was := l.versions[from]; file.mode != listReplace && from != 0 {
		if was == nil {
			return fmt.Errorf("version %d is made of version %d, which nobody knows", number, from)
		}
		copy(v.has, was.has)
		maps.Copy(v.expires, was.expires)
		for id := range l.edits {
			has, expires := l.entry(was, id, base)
			put(id, has, expires)
		}
	}
	if file.entries != nil {
		file.entries(func(id uint32, expires int64) { put(id, file.mode != listRemove, expires) })
	}
	l.versions[number] = v
	return nil
}

// listClose is the time around its expiry in which an entry is not judged.
const listClose = time.Second

// judge tells what is wrong with an answer that is yes or no. Any life that has begun may have
// given it: a peer that was frozen, or cut off, goes on with the life before. sure is false if
// nothing can be said about the answer.
func (o *listOracle) judge(a *ListAnswer) (wrong string, sure bool) {
	for i := len(o.lives) - 1; i >= 0; i-- {
		l := o.lives[i]
		if l.begin > a.At+a.Took {
			continue
		}
		why, known := o.judgeLife(l, a)
		if why == "" {
			return "", known
		}
		if wrong == "" {
			wrong = fmt.Sprintf("life %d: %s", i, why)
		}
	}
	return cmp.Or(wrong, "the list was not there yet"), true
}

func (o *listOracle) judgeLife(l *listLife, a *ListAnswer) (wrong string, sure bool) {
	v := l.versions[int64(a.Version)]
	if v == nil {
		return "nobody made this version", true
	}
	if l.doubtful[a.ID] {
		return "", false
	}
	has, expires := l.entry(v, a.ID, int64(a.Revision))
	if has && expires != 0 {
		left := time.Duration(expires-o.epoch)*time.Millisecond - a.At
		switch {
		case left > a.Took+listClose:
		case left < -listClose:
			has = false
		default:
			return "", false
		}
	}
	if has != (a.Verdict == ListYes) {
		return fmt.Sprintf("its version has it: %v, expiry %d, base %d, edits %v", v.has[a.ID/64]>>(a.ID%64)&1 == 1, v.expires[a.ID], v.base, l.edits[a.ID]), true
	}
	return "", true
}

// listJudge judges the answers of the peers of a run.
type listJudge struct {
	checker
	lists []*listOracle
	// excused returns the times at which a peer may not know, by the server of the version that it
	// names.
	excused func(peer string, a *ListAnswer) spans
	judged  map[string]int
}

// answer judges one answer.
func (j *listJudge) answer(peer string, a *ListAnswer) {
	if a.Verdict == ListUnknown {
		j.judged["unknown"]++
		if !j.mayNotKnow(peer, a) {
			j.bad("unknown", "%s", a.describe(peer))
		}
		return
	}
	wrong, sure := j.lists[a.List].judge(a)
	switch {
	case wrong != "":
		j.bad("answer", "%s; %s", a.describe(peer), wrong)
	case !sure:
		j.judged["open"]++
	case a.Verdict == ListYes:
		j.judged["yes"]++
	default:
		j.judged["no"]++
	}
	j.judged["source "+strconv.Itoa(int(a.Source))]++
}

func (a *ListAnswer) describe(peer string) string {
	return fmt.Sprintf("%s asked list %d for %d (%s) at %s, for %s: verdict %d, version %d, revision %d, source %d, reason %d",
		peer, a.List, a.ID, ListID(a.ID), a.At, a.Took, a.Verdict, a.Version, a.Revision, a.Source, a.Reason)
}

// mayNotKnow reports whether a fault touches a check.
func (j *listJudge) mayNotKnow(peer string, a *ListAnswer) bool {
	return slices.ContainsFunc(j.excused(peer, a), func(s span) bool { return s.both(span{a.At, a.At + a.Took + 1}).length() > 0 })
}
