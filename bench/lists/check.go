package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/namelist"
)

const (
	plainList  = "plain"
	plainIDs   = 200_000
	cachedIDs  = 100_000
	membersAsk = 1_000_000
	edits      = 10_000
	turns      = 2 // passes of each in a round
)

// sink keeps the compiler from leaving loops out.
var sink int

// loop is something that is timed: do for each of n ids.
type loop struct {
	n    int
	do   func(i int)
	idle *loop // that does nothing with the same ids
	ns   []float64
}

// pass is what do takes, in ns of the thread's processor time.
func (l *loop) pass() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := measure.ThreadTime()
	for i := range l.n {
		l.do(i)
	}
	runtime.KeepAlive(sink)
	l.ns = append(l.ns, float64(measure.ThreadTime()-begin)/float64(l.n))
}

// each is the median, without what the loop itself takes.
func (l *loop) each() float64 { return max(measure.Median(l.ns)-measure.Median(l.idle.ns), 0) }

// allocations counts the allocations of a pass for each id. It rounds down, as package testing
// does: the client itself allocates now and then.
func (l *loop) allocations() float64 {
	return float64(measure.Allocations(func() {
		for i := range l.n {
			l.do(i)
		}
	}) / uint64(l.n))
}

// idleLoop only reads the ids.
func idleLoop(ids []string) *loop {
	return &loop{n: len(ids), do: func(i int) { sink += int(ids[i][0]) }}
}

func inTurns(rounds int, loops ...*loop) {
	for _, l := range loops {
		l.ns = nil
	}
	for round := range turns * rounds {
		for i := range loops {
			loops[(i+round)%len(loops)].pass()
		}
	}
}

// asked are the ids that are asked in memory.
type asked struct{ members, strangers []string }

func runCheck(ctx context.Context, b *tool.Bench, d *bed) {
	d.list(ctx, b)
	strange := tool.Sized(b, strangers, d.ids/10)
	b.Say("One goroutine asks for %s ids, each once in a pass, in random order: the median of %d passes, in turns, by the "+
		"processor time of its thread, without that of a loop which only reads the ids. A miss is `Check` of a stranger that "+
		"the filter knows; the bare filter is asked with the hash known. A hit is `Check` of a member whose answer the cache "+
		"has: up to %s members.", thousands(strange), turns*d.rounds, thousands(cachedIDs))
	b.Say("The map is a map[string]struct{}. roaring64 is a bitmap of the ids' 64-bit hashes, filled in their order, since " +
		"another takes it hours; equal hashes would be wrong answers. Their bytes are what the live heap grows by. Ours are of " +
		"the filter; members are asked in Redis, or come from the cache.")
	headCtx, cancel := context.WithTimeout(ctx, stepLimit)
	head := tool.Must(d.lists.Head(headCtx, bigList))
	cancel()
	ids := asked{members: idsOf(shuffled(0, min(d.ids, membersAsk))), strangers: idsOf(shuffled(d.ids, strange))}
	t := result.NewTable("In memory", "bytes a member [B]", "a member [ns]", "a stranger [ns]", "wrong answers")
	addMap(&t, d, &ids)
	addRoaring(&t, d, head.Seed, &ids)
	b.Progress("the map and the bitmap are asked")
	share := bloomShareOf(d, &head, ids.strangers)
	order := d.checkOurs(ctx, b, &t, &head, ids.strangers)
	b.Target("false positives of filter bloom", result.Percent, result.AtMost, 1.05, share)
	t.Rows = append(t.Rows[2:], t.Rows[:2]...) // ours first
	b.Result.Tables = []result.Table{t, order}
}

// addPeer fills a peer, and asks it for all members and the strangers, and then in turns.
func addPeer(t *result.Table, d *bed, name string, ids *asked, fill func() (has func(id string) bool)) {
	before := measure.LiveHeap()
	has := fill()
	bytes := (measure.LiveHeap() - before) / float64(d.ids)
	wrong := 0
	for i := range d.ids {
		if !has(idOf(i)) {
			wrong++
		}
	}
	for _, id := range ids.strangers {
		if has(id) {
			wrong++
		}
	}
	count := func(ids []string) *loop {
		return &loop{n: len(ids), idle: idleLoop(ids), do: func(i int) {
			if has(ids[i]) {
				sink++
			}
		}}
	}
	member, stranger := count(ids.members), count(ids.strangers)
	inTurns(d.rounds, member, stranger, member.idle, stranger.idle)
	t.Add(name, bytes, member.each(), stranger.each(), wrong)
}

func addMap(t *result.Table, d *bed, ids *asked) {
	addPeer(t, d, "Go map", ids, func() func(string) bool {
		m := make(map[string]struct{}, d.ids)
		for i := range d.ids {
			m[idOf(i)] = struct{}{}
		}
		return func(id string) bool { _, ok := m[id]; return ok }
	})
}

func addRoaring(t *result.Table, d *bed, seed uint64, ids *asked) {
	addPeer(t, d, "roaring64 over hashes", ids, func() func(string) bool {
		bitmap := roaring64.New()
		bitmap.AddMany(hashesOf(d.ids, seed))
		return func(id string) bool { return bitmap.Contains(form.Sum(seed, id)) }
	})
}

// hashesOf returns the hashes of all members, sorted.
func hashesOf(ids int, seed uint64) []uint64 {
	out := make([]uint64, ids)
	for i := range out {
		out[i] = form.Sum(seed, idOf(i))
	}
	slices.Sort(out)
	return out
}

// bloomShareOf is how many of a hundred strangers a Bloom filter of the members lets pass, built in
// blocks as an import does it.
func bloomShareOf(d *bed, head *lists.Head, strangers []string) (percent float64) {
	hashes, bits := hashesOf(d.ids, head.Seed), head.Serving.BlockBits
	asked := make([]uint64, len(strangers))
	for i, id := range strangers {
		asked[i] = form.Sum(head.Seed, id)
	}
	var builder filter.Builder
	passed, done := 0, 0
	for index := range uint32(1) << bits {
		n := len(hashes) - done
		if i := slices.IndexFunc(hashes[done:], func(h uint64) bool { return form.Block(h, bits) != index }); i >= 0 {
			n = i
		}
		block := tool.Must(builder.Build(filter.Bloom, hashes[done:done+n]))
		done += n
		for _, h := range asked {
			if form.Block(h, bits) == index && block.Contains(h) {
				passed++
			}
		}
	}
	return 100 * float64(passed) / float64(len(asked))
}

// blocks are the filter of the version that serves.
func (d *bed) blocks(ctx context.Context, v *lists.Version) []*filter.Block {
	out := make([]*filter.Block, 1<<v.BlockBits)
	for i := range out {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		get := d.data.Client.B().Get().Key(lists.BlockKey(keyPrefix, bigList, v.Number, uint32(i))).Build()
		wire := tool.Must(d.data.Client.Do(ctx, get).AsBytes())
		cancel()
		out[i] = tool.Must(filter.Decode(wire, v.Build, uint32(i)))
	}
	return out
}

// checkOurs adds our row, and returns what the other order of filter and cache would cost.
func (d *bed) checkOurs(
	ctx context.Context, b *tool.Bench, t *result.Table, head *lists.Head, strangers []string,
) (order result.Table) {
	list, stop := d.loaded(ctx, bigList)
	defer tool.End(stop)
	var known []string
	for _, id := range strangers {
		if list.Peek(id).Verdict == namelist.No {
			known = append(known, id)
		}
	}
	passed := 100 * float64(len(strangers)-len(known)) / float64(len(strangers))
	unexpected := 0
	checks := func(l *namelist.List, ids []string, want namelist.Verdict, idle *loop) *loop {
		return &loop{n: len(ids), idle: idle, do: func(i int) {
			if l.Check(ctx, ids[i]).Verdict != want {
				unexpected++
			}
		}}
	}
	idle, kept := idleLoop(known), cacheSome(ctx, list, d.ids)
	bare, hitIdle := d.bareFilter(ctx, head, known), idleLoop(kept)
	miss, hit := checks(list, known, namelist.No, idle), checks(list, kept, namelist.Yes, hitIdle)

	plain, stopPlain := d.plain(ctx)
	defer tool.End(stopPlain)
	plainKept := cacheSome(ctx, plain, min(d.ids, plainIDs))
	plainIdle := idleLoop(plainKept)
	plainHit := checks(plain, plainKept, namelist.Yes, plainIdle)
	plainMiss := &loop{n: len(known), idle: idle, do: func(i int) {
		if plain.Peek(known[i]).Verdict != namelist.Unknown {
			unexpected++
		}
	}}
	hashed := &loop{n: len(known), idle: idle, do: func(i int) {
		id, _ := head.Form.Clean(known[i])
		sink += int(form.Sum(head.Seed, id))
	}}
	inTurns(d.rounds, idle, bare, bare.idle, miss, hit, hitIdle, plainHit, plainIdle, plainMiss, hashed)
	missed, found := miss.allocations(), hit.allocations()

	d.edit(ctx, list, d.ids+len(strangers))
	edited := checks(list, known, namelist.No, idle)
	inTurns(d.rounds, idle, edited)
	if unexpected > 0 {
		tool.Check(fmt.Errorf("%d answers of Check were not as expected", unexpected))
	}
	ns, limit := result.Nanoseconds, max(40, measure.FourFigures(2.5*bare.each()))
	b.Target("miss, by Check", ns, result.AtMost, limit, miss.each())
	b.Note("the bare filter takes %.1f ns", bare.each())
	b.Target("miss with 10,000 edits, by Check", ns, result.AtMost, 60, edited.each())
	b.Target("miss: allocations", result.Number, result.Exactly, 0, max(missed, edited.allocations()))
	b.Target("hit in the local cache, by Check", ns, result.AtMost, 150, hit.each())
	b.Target("hit: allocations", result.Number, result.Exactly, 0, found)
	b.Target("false positives of filter fuse", result.Percent, result.AtMost, 0.45, passed)
	t.Add("freeslot", float64(head.Serving.FilterBytes)/float64(d.ids), hit.each(), miss.each(), nil)
	return d.otherOrder(b, hit, miss, plainHit, max(plainMiss.each()-hashed.each(), 0))
}

// bareFilter asks the filter with the hash known.
func (d *bed) bareFilter(ctx context.Context, head *lists.Head, ids []string) *loop {
	blocks, hashes, bits := d.blocks(ctx, head.Serving), make([]uint64, len(ids)), head.Serving.BlockBits
	for i, id := range ids {
		hashes[i] = form.Sum(head.Seed, id)
	}
	return &loop{n: len(ids), idle: &loop{n: len(ids), do: func(i int) { sink += int(hashes[i]) }}, do: func(i int) {
		if h := hashes[i]; blocks[form.Block(h, bits)].Contains(h) {
			sink++
		}
	}}
}

// otherOrder adds to a miss what the cache takes to know nothing.
func (d *bed) otherOrder(b *tool.Bench, hit, miss, plainHit *loop, unknown float64) result.Table {
	first := miss.each() + unknown
	b.Say("Cache before filter: a hit costs what it costs in a list of %s ids without a filter. A miss also pays for a `Peek` "+
		"of an unknown id, without form and hash. %s",
		thousands(min(d.ids, plainIDs)), cheaper(hit.each(), miss.each(), plainHit.each(), first))
	order := result.NewTable("Order", "a hit [ns]", "a miss [ns]")
	order.Add("filter before cache, as it is", hit.each(), miss.each())
	order.Add("cache before filter", plainHit.each(), first)
	return order
}

// cheaper says which order takes less, by the share of hits.
func cheaper(hit, miss, firstHit, firstMiss float64) string {
	saved, lost := hit-firstHit, firstMiss-miss
	switch {
	case saved <= 0 && lost <= 0:
		return "It takes no more in either."
	case saved <= 0:
		return "It is dearer in both."
	case lost <= 0:
		return "It is cheaper in both."
	}
	return fmt.Sprintf("It is cheaper only where more than %.0f %% of the checks hit the cache.", 100*lost/(saved+lost))
}

// loaded is a list that a client has loaded, and how to close the client.
func (d *bed) loaded(ctx context.Context, name string) (*namelist.List, func() error) {
	ctx, cancel := context.WithTimeout(ctx, seenLimit)
	defer cancel()
	c, stop := openClient(d.control.URL())
	l := c.List(name)
	if err := l.WaitReady(ctx); err != nil {
		tool.Check(errors.Join(err, stop()))
	}
	return l, stop
}

// plain makes a list without filter.
func (d *bed) plain(ctx context.Context) (*namelist.List, func() error) {
	d.create(ctx, plainList, filter.None)
	i := d.load(ctx, d.replicas[0], plainList, min(d.ids, plainIDs), false)
	d.switchTo(ctx, plainList, i.version.Number, 0)
	return d.loaded(ctx, plainList)
}

// cacheSome asks for members, and returns those that the cache then has, in another order.
func cacheSome(ctx context.Context, l *namelist.List, ids int) (kept []string) {
	numbers := shuffled(0, ids)[:min(cachedIDs, ids)]
	all := idsOf(numbers)
	l.CheckAll(ctx, all)
	slices.Sort(numbers)
	for _, id := range idsOf(numbers) {
		if l.Peek(id).Verdict == namelist.Yes {
			kept = append(kept, id)
		}
	}
	return kept
}

// edit adds strangers from the number first on, and waits until a client has them.
func (d *bed) edit(ctx context.Context, l *namelist.List, first int) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var revision int64
	for n := 0; n < edits; n += lists.EditEntries {
		var changes []lists.Change
		for i := range lists.EditEntries {
			changes = append(changes, lists.Change{Entry: lists.Entry{ID: idOf(first + n + i)}})
		}
		revision = tool.Must(d.lists.Edit(ctx, bigList, lists.EditRequest{Changes: changes, By: by}))
	}
	for l.Status().Revision < revision {
		tool.Sleep(ctx, pollEvery)
	}
}
