package faults

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
)

const (
	// listMembers is the size of the larger list, unless LISTS_MEMBERS says another one.
	// LISTS_FAULTS names other faults than the test does, with commas between.
	listMembers = 200_000
	// listsShort is for how long things break with SHORT=1.
	listsShort = 12 * time.Second
	// converged is how long peers may take to answer from what there is at the end, and cleaned how
	// long until no key is left over.
	converged, cleaned = time.Minute, time.Minute
)

// TestListsFaults: control and lists are on one server. SHORT=1 leaves it out: what it breaks the
// other two break as well.
func TestListsFaults(t *testing.T) {
	if os.Getenv("SHORT") == "1" && os.Getenv("LISTS_FAULTS") == "" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	testLists(t, listsOne, FaultKillHolder, FaultSegments, FaultKillControl, FaultFreezePeer, FaultDisk, FaultKillPeer, FaultMemory, FaultFlush, FaultFreeze, FaultLoseHolder, FaultFreezeHolder)
}

// TestListsFaultsSeveral: lists have a server of their own.
func TestListsFaultsSeveral(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	testLists(t, listsSeveral, FaultFreezeHolder, FaultFlushServer, FaultFreezePeer, FaultKillServer, FaultMemory, FaultKillHolder, FaultKillControl, FaultFlush, FaultFreezeServer, FaultFreeze, FaultLoseHolder)
}

// TestListsFaultsCluster: all is on three masters.
func TestListsFaultsCluster(t *testing.T) {
	t.Parallel()
	testLists(t, listsCluster, FaultFreeze, FaultFreezePeer, FaultSegments, FaultKillHolder, FaultLoseHolder, FaultFlush, FaultDisk, FaultFreezeHolder)
}

func testLists(t *testing.T, topology string, faults ...string) {
	t.Helper()
	r := listsRun{seed: seedOfRun(t), length: lengthOfRun(t), topology: topology, members: listMembers, faults: faults}
	if os.Getenv("SHORT") == "1" && os.Getenv("DURATION") == "" {
		r.length = listsShort
	}
	if os.Getenv("SHORT") == "1" && topology == listsCluster {
		r.members /= 4 // builds rest most of the time where jobs are, too
	}
	if text := os.Getenv("LISTS_MEMBERS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("LISTS_MEMBERS is %q, expected a number", text)
		}
		r.members = uint32(n)
	}
	if text := os.Getenv("LISTS_FAULTS"); text != "" {
		r.faults = strings.Split(text, ",")
	}
	t.Logf("this run again: make faults SEED=%d DURATION=%s TEST_ARGS='-run %s'", r.seed, r.length, t.Name())
	found := r.do(t)
	for _, v := range found[:min(len(found), shownViolations)] {
		t.Errorf("%s", v)
	}
}

// finalImports are those after the last fault: of several versions some must be removed.
func finalImports() int {
	if os.Getenv("SHORT") == "1" {
		return 1
	}
	return 3
}

// do breaks what is to break while lists change, and returns what is wrong.
func (r *listsRun) do(t *testing.T) []Violation {
	t.Helper()
	b := r.start(t)
	end := Clock() + r.length
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		b.breakAll(t.Context(), end)
	}()
	each(b.works, func(w *listWork) {
		for over := false; !over; {
			select {
			case <-broken:
				over = Clock() >= end
			default:
			}
			w.step()
		}
	})
	<-broken
	b.awaitUp(b.patience())
	strict := map[string]int64{}
	for _, w := range b.works {
		strict[w.name] = w.highest()
	}
	each(b.works, func(w *listWork) {
		if w.hurt.Load() {
			w.recover()
		}
		for range finalImports() {
			w.imports(listReplace)
		}
		w.rebuild("/expand", map[string]any{})
		w.stop()
	})
	b.t.Logf("%s: converge", Clock())
	b.converge()
	b.t.Logf("%s: verify", Clock())
	each(b.works, (*listWork).verify)
	b.t.Logf("%s: left over", Clock())
	b.leftOver(strict)
	b.t.Logf("%s: judge", Clock())
	for name := range listPeers {
		b.programs[name].stop()
	}
	b.judge()
	return b.violations
}

// serverOf is the server of the version that an answer names; empty is any.
func (w *listWork) serverOf(a *ListAnswer) (server string) {
	for _, v := range w.versions {
		if v.Number != int64(a.Version) || len(w.servers) == 1 {
			continue
		}
		is := cmp.Or(v.Server, controlServer)
		if server != "" && server != is {
			return "" // there were two of this number
		}
		server = is
	}
	return server
}

// highest is the highest number that a version ever had.
func (w *listWork) highest() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.head.Number
	for _, v := range w.versions {
		n = max(n, v.Number)
	}
	return n
}

// converge waits until all peers answer from what there is.
func (b *listsBed) converge() {
	for name := range listPeers {
		for _, w := range b.works {
			var a ListAnswer
			var h lists.Head
			if !b.until(converged, func() bool {
				if is, err := b.control.Head(b.t.Context(), w.name); err == nil {
					h = is
				}
				a = b.newest(name, w.index)
				return a.Verdict != ListUnknown && h.Serving != nil && int64(a.Version) == h.Serving.Number && int64(a.Revision) == h.Revision
			}) {
				b.bad("converge", "%s; serving %+v at revision %d", a.describe(name), h.Serving, h.Revision)
			}
		}
	}
}

// verify has the versions that control names read back: none of them may be a half one.
func (w *listWork) verify() {
	var page struct{ Versions []lists.Version }
	if a := w.call("r1", http.MethodGet, w.path("/versions"), nil, &page); a.code != "" {
		w.bad("verify", "versions of list %s: %s", w.name, a)
	}
	for _, v := range page.Versions {
		if v.Number < w.usable {
			continue
		}
		var is lists.Version
		if a := w.call("r1", http.MethodPost, w.path("/versions/"+strconv.FormatInt(v.Number, 10)+"/verify"), nil, &is); a.code == "not_found" {
			continue // it was dropped meanwhile
		} else if a.code != "" || is.Damaged != "" {
			w.bad("half version", "%d of list %s: %s %s", v.Number, w.name, a, is.Damaged)
		}
		w.count("verified")
	}
}

// collect has a replica remove what others have left that were killed.
func (b *listsBed) collect() {
	for after := ""; ; {
		var page struct {
			Next    string   `json:"next"`
			Removed int64    `json:"removed"`
			Failed  []string `json:"failed"`
		}
		if a := b.call("r1", http.MethodPost, "/v1/list-gc", map[string]any{"after": after}, &page); a.code != "" || len(page.Failed) > 0 {
			b.bad("left over", "collect: %s %s", a, page.Failed)
			return
		}
		b.mu.Lock()
		b.counts["collected keys"] += int(page.Removed)
		b.mu.Unlock()
		if after = page.Next; after == "" {
			return
		}
	}
}

// leftOver waits until each key is of a version that control knows. When control is flushed it
// forgets what was to be removed, and collect leaves what control never knew; so it must be true
// for the versions that were begun after the last fault.
func (b *listsBed) leftOver(strict map[string]int64) {
	b.collect()
	for _, w := range b.works {
		var unknown, old map[int64]int
		if !b.until(cleaned, func() bool {
			versions, err := b.control.Versions(b.t.Context(), w.name)
			if err != nil {
				return false
			}
			unknown, old = map[int64]int{}, map[int64]int{}
			for i, s := range b.servers {
				has, err := s.dataVersions(w.name)
				if err != nil {
					b.t.Logf("keys of %s: %v", w.name, err)
					return false
				}
				for number, n := range has {
					if slices.ContainsFunc(versions, func(v lists.Version) bool {
						return v.Number == number && (len(b.servers) == 1 || (v.Server == otherServer) == (i == 1))
					}) {
						continue
					}
					if number <= strict[w.name] && b.forgets() {
						old[number] += n
					} else {
						unknown[number] += n
					}
				}
			}
			return len(unknown)+len(old) == 0
		}) && len(unknown) > 0 {
			b.bad("left over", "keys of list %s, by version: %v", w.name, unknown)
		}
		b.t.Logf("list %s: keys by version that control has forgotten: %v", w.name, old)
	}
}

// forgets reports whether a fault had control forget what is to be removed.
func (b *listsBed) forgets() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts["fault: "+FaultFlush] > 0
}

// judge judges all answers.
func (b *listsBed) judge() {
	excused := map[[2]string]spans{}
	for name := range listPeers {
		for _, server := range []string{"", controlServer, otherServer} {
			excused[[2]string{name, server}] = b.excused(name, server)
		}
	}
	j := &listJudge{judged: map[string]int{}, excused: func(peer string, a *ListAnswer) spans {
		return excused[[2]string{peer, b.works[a.List].serverOf(a)}]
	}}
	for _, w := range b.works {
		w.build()
		j.lists = append(j.lists, w.oracle)
	}
	for _, name := range slices.Sorted(maps.Keys(listPeers)) {
		versions := map[uint32]bool{}
		if err := b.answers(name, func(a *ListAnswer) {
			j.answer(name, a)
			if a.List == 0 {
				versions[a.Version] = true
			}
		}); err != nil {
			b.t.Error(err)
		}
		b.t.Logf("%s: answers of %d versions", name, len(versions))
		if len(versions) < 2 {
			b.t.Errorf("%s saw no switch", name)
		}
	}
	b.t.Logf("done %v; answers %v", b.counts, j.judged)
	if left := b.leftOut(); left == 0 {
		b.t.Error("p2 had room for all blocks")
	}
	b.violations = append(b.violations, j.violations...)
}

// leftOut is how often p2 had not all blocks of the larger list, with no switch under way.
func (b *listsBed) leftOut() (n int) {
	log, err := os.ReadFile(filepath.Join(b.folder, "p2.log"))
	if err != nil {
		b.t.Error(err)
	}
	for line := range bytes.Lines(log) {
		var s struct {
			List           string
			Next           int64
			Blocks, Loaded int
		}
		if json.Unmarshal(line, &s) == nil && s.List == b.works[0].name && s.Next == 0 && s.Loaded < s.Blocks {
			n++
		}
	}
	return n
}
