package faults

import (
	"testing"
	"time"
)

// newTestOracle has a list of which id 1 is removed at revision 5, and id 3 ends at 20 s. Version 2
// is made of version 1 at revision 6, without id 2.
func newTestOracle(t *testing.T) *listOracle {
	t.Helper()
	o := &listOracle{ids: ListIDs{100}, lives: []*listLife{{
		begin: time.Second, versions: map[int64]*listVersion{}, edits: map[uint32][]listEdit{}, doubtful: map[uint32]bool{9: true},
	}}}
	o.edited(0, 5, map[uint32]listEdit{1: {}})
	o.sort()
	add := func(entries map[uint32]int64) func(func(uint32, int64)) {
		return func(add func(uint32, int64)) {
			for id, expires := range entries {
				add(id, expires)
			}
		}
	}
	for _, err := range []error{
		o.build(0, 1, 2, 0, &listFile{listReplace, add(map[uint32]int64{1: 0, 2: 0, 3: 20_000})}),
		o.build(0, 2, 6, 1, &listFile{listRemove, add(map[uint32]int64{2: 0})}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestListOracle(t *testing.T) {
	t.Parallel()
	o := newTestOracle(t)
	for _, c := range []struct {
		name        string
		a           ListAnswer
		right, sure bool
	}{
		{"a member", ListAnswer{ID: 1, Version: 1, Revision: 4, Verdict: ListYes}, true, true},
		{"a member that was removed", ListAnswer{ID: 1, Version: 1, Revision: 5, Verdict: ListNo}, true, true},
		{"an edit that was not asked", ListAnswer{ID: 1, Version: 1, Revision: 5, Verdict: ListYes}, false, true},
		{"an edit that was asked too early", ListAnswer{ID: 1, Version: 1, Revision: 4, Verdict: ListNo}, false, true},
		{"an edit that the version has", ListAnswer{ID: 1, Version: 2, Revision: 7, Verdict: ListNo}, true, true},
		{"a removed one at the version before", ListAnswer{ID: 2, Version: 1, Revision: 7, Verdict: ListYes}, true, true},
		{"a removed one", ListAnswer{ID: 2, Version: 2, Revision: 7, Verdict: ListYes}, false, true},
		{"a stranger", ListAnswer{ID: 140, Version: 1, Revision: 4, Verdict: ListYes}, false, true},
		{"no version", ListAnswer{ID: 140, Version: 3, Revision: 4, Verdict: ListNo}, false, true},
		{"too early", ListAnswer{At: -time.Hour, ID: 140, Version: 1, Revision: 4, Verdict: ListNo}, false, true},
		{"of an edit that nobody knows", ListAnswer{ID: 9, Version: 1, Revision: 4, Verdict: ListYes}, true, false},
		{"before an expiry", ListAnswer{At: 8 * time.Second, ID: 3, Version: 1, Revision: 4, Verdict: ListNo}, false, true},
		{"close to an expiry", ListAnswer{At: 9500 * time.Millisecond, ID: 3, Version: 1, Revision: 4, Verdict: ListNo}, true, false},
		{"over an expiry", ListAnswer{At: 8 * time.Second, Took: 3 * time.Second, ID: 3, Version: 1, Revision: 4, Verdict: ListNo}, true, false},
		{"after an expiry", ListAnswer{At: 12 * time.Second, ID: 3, Version: 2, Revision: 6, Verdict: ListYes}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.a.At += 10 * time.Second
			a := readListAnswer(c.a.Append(nil))
			if a != c.a {
				t.Errorf("the log has %+v of %+v", a, c.a)
			}
			if wrong, sure := o.judge(&a); (wrong == "") != c.right || sure != c.sure {
				t.Errorf("%q, sure: %v", wrong, sure)
			}
		})
	}
}

func TestListJudgeUnknown(t *testing.T) {
	t.Parallel()
	excused := map[string]spans{"p1": {{2 * time.Second, 3 * time.Second}}}
	j := &listJudge{
		lists: []*listOracle{newTestOracle(t)}, judged: map[string]int{},
		excused: func(peer string, _ *ListAnswer) spans { return excused[peer] },
	}
	for _, at := range []time.Duration{time.Second, 2500 * time.Millisecond, 4 * time.Second} {
		j.answer("p1", &ListAnswer{At: at, Took: 10 * time.Millisecond})
	}
	j.answer("p1", &ListAnswer{At: time.Second, Took: 1100 * time.Millisecond}) // a fault began meanwhile
	j.answer("p2", &ListAnswer{At: 2500 * time.Millisecond})
	if len(j.violations) != 3 {
		t.Errorf("found %v, expected three", j.violations)
	}
}
