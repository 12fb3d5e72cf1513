package faults

import (
	"slices"
	"testing"
	"time"
)

// TestCheckLocks: the checker finds what it is for, and no more.
func TestCheckLocks(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	held := func(name string, token, call, from, to int64) LockOp {
		return LockOp{Kind: Acquire, Key: "k", Hold: name, Token: token, Call: call * ms, Return: from * ms, Live: to * ms}
	}
	op := func(name string, n int, kind LockKind, token, call, end int64, accepted bool, value string) LockOp {
		return LockOp{Kind: kind, Key: "k", Hold: name, N: n, Token: token, Call: call * ms, Return: end * ms, Accepted: accepted, Value: value}
	}
	for name, c := range map[string]struct {
		ops     []LockOp
		overlap time.Duration
		rules   []string
	}{
		"one after the other": {ops: []LockOp{held("a", 1, 0, 1, 5), held("b", 2, 0, 6, 9)}},
		"at one time":         {ops: []LockOp{held("a", 1, 0, 1, 5), held("b", 2, 0, 4, 9)}, rules: []string{"two holders"}},
		"within a long one":   {ops: []LockOp{held("a", 1, 0, 1, 50), held("b", 2, 0, 4, 9), held("c", 3, 0, 10, 11)}, rules: []string{"two holders", "two holders"}},
		"live by a later word": {
			ops:   []LockOp{held("a", 1, 0, 1, 1), {Key: "k", Hold: "a", N: 1, Token: 1, Kind: Write, Call: 2 * ms, Return: 8 * ms, Live: 8 * ms, Accepted: true}, held("b", 2, 0, 4, 9)},
			rules: []string{"two holders"},
		},
		"not for longer than allowed": {ops: []LockOp{held("a", 1, 0, 1, 5), held("b", 2, 0, 4, 9)}, overlap: time.Millisecond},
		"another lock":                {ops: []LockOp{held("a", 1, 0, 1, 5), {Kind: Acquire, Key: "other", Hold: "b", Token: 1, Return: 4 * ms, Live: 9 * ms}}},
		"late, and over":              {ops: []LockOp{held("b", 2, 0, 6, 9), held("a", 1, 0, 7, 0)}},
		"tokens against the order":    {ops: []LockOp{held("a", 2, 0, 1, 5), held("b", 1, 0, 6, 9)}, rules: []string{"tokens"}},
		"allowed to be in any order":  {ops: []LockOp{held("a", 2, 0, 1, 5), held("b", 1, 0, 6, 9)}, overlap: time.Millisecond},
		"asked for later":             {ops: []LockOp{held("a", 2, 0, 1, 5), held("b", 1, 3, 6, 9)}, overlap: time.Millisecond, rules: []string{"tokens"}},
		"a stale write is refused": {ops: []LockOp{
			held("a", 1, 0, 1, 5), held("b", 2, 0, 6, 9),
			op("b", 1, Write, 2, 6, 7, true, "b"), op("a", 1, Write, 1, 7, 8, false, "a"), op("b", 2, Read, 2, 8, 9, false, "b"),
		}},
		"a stale write is taken": {rules: []string{"register"}, ops: []LockOp{
			held("a", 1, 0, 1, 5), held("b", 2, 0, 6, 9),
			op("b", 1, Write, 2, 6, 7, true, "b"), op("a", 1, Write, 1, 8, 9, true, "a"),
		}},
		"a good write is refused": {rules: []string{"register"}, ops: []LockOp{held("a", 1, 0, 1, 5), op("a", 1, Write, 1, 2, 3, false, "a")}},
		"an old value is read": {rules: []string{"register"}, ops: []LockOp{
			held("a", 1, 0, 1, 9), op("a", 1, Write, 1, 2, 3, true, "1"), op("a", 2, Write, 1, 4, 5, true, "2"), op("a", 3, Read, 1, 6, 7, false, "1"),
		}},
		"an unknown write has come": {ops: []LockOp{held("a", 1, 0, 1, 5), op("a", 1, Write, 1, 2, 0, false, "a"), held("b", 2, 0, 6, 9), op("b", 1, Read, 2, 7, 8, false, "a")}},
		"an unknown write has not":  {ops: []LockOp{held("a", 1, 0, 1, 5), op("a", 1, Write, 1, 2, 0, false, "a"), held("b", 2, 0, 6, 9), op("b", 1, Read, 2, 7, 8, false, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rules []string
			found := CheckLocks(c.ops, c.overlap)
			for _, v := range found {
				rules = append(rules, v.Rule)
			}
			if !slices.Equal(rules, c.rules) {
				t.Errorf("found %v, expected %v", found, c.rules)
			}
		})
	}
}
