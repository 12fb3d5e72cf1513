package namelist

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// put writes a version of a chain, and has it be the one expected.
func (r *rig) putChain(p ChainPut, want int64) {
	r.t.Helper()
	if got, err := r.PutChain(bounded(r.t), p); err != nil || got != want {
		r.t.Fatalf("version %d, %v; want version %d", got, err, want)
	}
}

func (r *rig) mark(chain string) Mark {
	r.t.Helper()
	marks, _, _, err := r.Look(bounded(r.t), []string{ChainMark(chain)}, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return marks[0]
}

// TestChainStore: versions, conflicts, rollback, shadow and deletion, and what readers hear of
// each.
func TestChainStore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		var heard, begun atomic.Int64
		stop := r.Follow(r.client, ChainMark("checkout"), zaptest.NewLogger(t), func(e Event) {
			heard.Add(min(e.Revision, 1))
			begun.Add(1)
		})
		defer stop()
		waittest.Until(t, "the subscription", func() bool { return begun.Load() > 0 })
		ok[Head](t)(r.Create(ctx, "vip", Spec{}))
		_, err := r.Chain(ctx, "checkout")
		is(t, "a chain that is not there", err, freeslot.CodeNotFound)
		_, err = r.ChainVersions(ctx, "checkout")
		is(t, "versions of a chain that is not there", err, freeslot.CodeNotFound)
		is(t, "delete", r.DeleteChain(ctx, "checkout", 1), freeslot.CodeNotFound)
		_, err = r.ShadowChain(ctx, ChainPut{Chain: "checkout", Seen: 1, Document: "{}"})
		is(t, "a shadow of no chain", err, freeslot.CodeNotFound)
		_, err = r.PutChain(ctx, ChainPut{Chain: "checkout", Document: "{}", Lists: []string{"vip", "none", "also-none"}})
		is(t, "unknown lists", err, freeslot.CodeInvalidArgument)
		if !strings.Contains(err.Error(), "none, also-none") {
			t.Fatalf("%v; want both unknown lists", err)
		}

		by := By{Author: "ann", Note: "why"}
		one := ChainPut{Chain: "checkout", Document: `{"v":1}`, Lists: []string{"vip"}, By: by}
		r.putChain(one, 1)
		first := r.mark("checkout")
		r.putChain(one, 1) // as if the answer had been lost
		if now := r.mark("checkout"); now != first || first.Birth == "" {
			t.Fatalf("mark %+v after a repetition; want %+v", now, first)
		}
		two := ChainPut{Chain: "checkout", Seen: 1, Document: `{"v":2}`}
		r.putChain(two, 2)
		if now := r.mark("checkout"); now.Birth != first.Birth || now.Revision <= first.Revision {
			t.Fatalf("mark %+v after a new version; want a revision above %+v", now, first)
		}
		one.Seen = 1
		_, err = r.PutChain(ctx, one)
		is(t, "a version that was seen before", err, freeslot.CodeConflict)
		_, old, err := r.ChainAt(ctx, "checkout", 1)
		if err != nil || old != one.Document {
			t.Fatalf("version 1 is %q, %v; want %q", old, err, one.Document)
		}
		one.Seen, one.Restores = 2, 1
		r.putChain(one, 3)
		got := ok[ChainRecord](t)(r.Chain(ctx, "checkout"))
		if got.Document != one.Document || got.Version != 3 || got.Restores != 1 || got.Author != "ann" || got.AtMS == 0 {
			t.Fatalf("%+v; want version 3, which restores version 1, by ann", got)
		}
		versions := ok[[]ChainVersion](t)(r.ChainVersions(ctx, "checkout"))
		if len(versions) != 3 || versions[0] != got.ChainVersion {
			t.Fatalf("versions %+v; want 3, and first %+v", versions, got.ChainVersion)
		}
		_, _, err = r.ChainAt(ctx, "checkout", 9)
		is(t, "a version that is not there", err, freeslot.CodeNotFound)

		_, err = r.ShadowChain(ctx, ChainPut{Chain: "checkout", Seen: 2, Document: `{"v":4}`})
		is(t, "a shadow beside an old version", err, freeslot.CodeConflict)
		ok[int64](t)(r.ShadowChain(ctx, ChainPut{Chain: "checkout", Seen: 3, Document: `{"v":4}`, By: by}))
		shadowed := ok[ChainRecord](t)(r.Chain(ctx, "checkout"))
		if shadowed.Shadow != `{"v":4}` || shadowed.ShadowBy != "ann: why" || shadowed.Version != 3 || shadowed.Mark == got.Mark {
			t.Fatalf("%+v; want version 3 with a shadow, and another mark", shadowed)
		}
		wire, err := json.Marshal(shadowed.Wire())
		if back, also := DecodeChain("checkout", wire); err != nil || also != nil || back != shadowed {
			t.Fatalf("by HTTP %+v, %v, %v; want %+v", back, err, also, shadowed)
		}
		r.putChain(ChainPut{Chain: "checkout", Seen: 3, Document: `{"v":4}`}, 4)
		if now := ok[ChainRecord](t)(r.Chain(ctx, "checkout")); now.Shadow != "" || now.ShadowBy != "" {
			t.Fatalf("%+v; want no shadow after a new version", now)
		}

		if heads := ok[[]Head](t)(r.Heads(ctx, "", 10, nil)); len(heads) != 1 || heads[0].Name != "vip" {
			t.Fatalf("lists %+v; want vip alone", heads)
		}
		if chains := ok[[]ChainRecord](t)(r.Chains(ctx, "", 10)); len(chains) != 1 || chains[0].Version != 4 {
			t.Fatalf("chains %+v; want checkout at version 4", chains)
		}
		is(t, "delete of an old version", r.DeleteChain(ctx, "checkout", 3), freeslot.CodeConflict)
		if err := r.DeleteChain(ctx, "checkout", 4); err != nil {
			t.Fatal(err)
		}
		if now := r.mark("checkout"); now != (Mark{}) {
			t.Fatalf("mark %+v of a deleted chain; want none", now)
		}
		r.putChain(ChainPut{Chain: "checkout", Document: "{}"}, 5) // a version number is not used twice
		waittest.Until(t, "an event of each of the 7 changes", func() bool { return heard.Load() == 7 })
	})
}

// TestChainKeepsLists: a list that a chain or a shadow asks is deleted by force alone.
func TestChainKeepsLists(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		for _, list := range []string{"vip", "next", "free"} {
			ok[Head](t)(r.Create(ctx, list, Spec{}))
		}
		r.putChain(ChainPut{Chain: "checkout", Document: "{}", Lists: []string{"vip"}}, 1)
		ok[int64](t)(r.ShadowChain(ctx, ChainPut{Chain: "checkout", Seen: 1, Document: "{ }", Lists: []string{"next", "vip"}}))
		for _, list := range []string{"vip", "next"} {
			_, err := r.Delete(ctx, list, AnyVersion, false, By{})
			is(t, "delete "+list, err, freeslot.CodeConflict)
			if !strings.Contains(err.Error(), "chain checkout") {
				t.Fatalf("%v; want the chain named", err)
			}
		}
		ok[Head](t)(r.Delete(ctx, "free", AnyVersion, false, By{}))
		ok[Head](t)(r.Delete(ctx, "vip", AnyVersion, true, By{}))
	})
}

// TestChainRacers: of many that saw one version one wins, and the history has what won.
func TestChainRacers(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var won []string
		for round := range int64(4) {
			wins := make(chan string, 8)
			var racers sync.WaitGroup
			for i := range cap(wins) {
				racers.Go(func() {
					document := fmt.Sprintf(`{"round":%d,"by":%d}`, round, i)
					_, err := r.PutChain(bounded(t), ChainPut{Chain: "one", Seen: round, Document: document})
					if err == nil {
						wins <- document
					} else if freeslot.CodeOf(err) != freeslot.CodeConflict {
						t.Error(err)
					}
				})
			}
			racers.Wait()
			if len(wins) != 1 {
				t.Fatalf("%d won round %d; want 1", len(wins), round)
			}
			won = append(won, <-wins)
		}
		var kept []string
		for i := range won {
			_, document, err := r.ChainAt(bounded(t), "one", int64(i)+1)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, document)
		}
		if !slices.Equal(kept, won) {
			t.Fatalf("kept %q; want %q", kept, won)
		}
	})
}

// TestChainInput: every mistake is named.
func TestChainInput(t *testing.T) {
	t.Parallel()
	p := ChainPut{Chain: "a_b", Seen: -1, Document: strings.Repeat("x", MaxChain+1), By: By{Author: "a\n"}}
	e, ok := p.validate().(*freeslot.Error) //nolint:errorlint // it is not wrapped
	if !ok || len(e.Errors) != 4 {
		t.Fatalf("%v; want chain, version, document and author", p.validate())
	}
	for _, mark := range []string{"chain_", "chain_a_b", "a_b", ""} {
		if ValidateMark("lists", mark) == nil {
			t.Errorf("mark %q is valid; want an error", mark)
		}
	}
	for _, mark := range []string{"chain_a", "a", "chain"} {
		if err := ValidateMark("lists", mark); err != nil {
			t.Errorf("mark %q: %v; want no error", mark, err)
		}
	}
}
