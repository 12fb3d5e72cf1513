package version

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	// blockKeys is the largest average number of keys in a block; with that average, no block has
	// more than filter.MaxKeys.
	blockKeys = filter.MaxKeys * 95 / 100
	// callSegments bounds the segments of a call if most are empty.
	callSegments = 256
	// blockBytes is what a block's key needs in addition to its wire form.
	blockBytes = 128
)

// write writes the version's segments and blocks.
func (r *run) write(ctx context.Context) error {
	total := r.journal.total()
	if r.journal.Version == nil {
		segments, bytes := r.to.segmented(total)
		v := &namelist.Version{
			Number: r.Number, Build: r.Build, Segments: segments, Count: total.Count, Filter: r.Filter,
			Rejected: r.report.Rejected,
		}
		for r.Filter != filter.None && total.Count>>v.BlockBits > blockKeys {
			v.BlockBits++
		}
		if v.BlockBits > filter.MaxBlockBits {
			return fmt.Errorf("%d ids are more than a filter takes", total.Count)
		}
		need := namelist.Reservation{Bytes: bytes, Segments: segments}
		if r.Filter != filter.None {
			need.Blocks = 1 << v.BlockBits
		}
		if err := r.to.budget(ctx, need, &r.Budget); err != nil {
			return err
		}
		r.journal.Version = v
	}
	if r.journal.Verified {
		return nil
	}
	w := &writer{
		run: r, ctx: ctx, v: r.journal.Version, calls: newFlight(r.to.atOnce()), next: &batch{}, args: []string{""},
	}
	for p := range r.journal.Partitions {
		err := readRecords(partitionFile(r.dir, familySorted, p), w.add)
		if err = cmp.Or(err, w.checkpoint()); err != nil {
			return err
		}
	}
	if err := cmp.Or(w.finish(), w.checkpoint()); err != nil {
		return err
	}
	if w.digest.Count() != total.Count {
		return fmt.Errorf("the folder has lost entries: %d of %d are there", w.digest.Count(), total.Count)
	}
	w.v.Digest = w.digest.String()
	return r.journal.save(r.dir)
}

// verify reads everything back, and measures.
func (r *run) verify(ctx context.Context) error {
	v := r.journal.Version
	if r.journal.Verified {
		return nil
	}
	err := r.to.Verify(ctx, r.List, v, func(done uint32) { r.progress(StepVerify, int64(done), int64(v.Segments)) })
	if err != nil {
		return err
	}
	bytes, err := r.to.measure(ctx, r.List, v, r.journal.total().Long == 0)
	if err != nil {
		return err
	}
	v.Bytes = bytes + v.FilterBytes + blockBytes*int64(blocks(v))
	r.journal.Verified = true
	return r.journal.save(r.dir)
}

// writer goes through the entries of a version in the order of their hashes. It skips what is
// written according to the journal.
type writer struct {
	*run
	ctx    context.Context // of the call that this is the state of
	v      *namelist.Version
	digest form.Digest
	calls  *flight

	segment uint32   // the one being gathered, behind those in next
	args    []string // its number of entries, set at the end, and its entries
	next    *batch
	entries int // in next

	block   uint32 // the one being gathered
	keys    []uint64
	filters filter.Builder
}

func (w *writer) add(r record) error {
	hash := form.Sum(w.Seed, r.id)
	w.digest.Add(r.id, r.expires)
	for segment := form.Segment(hash, w.v.Segments); w.segment < segment; {
		w.endSegment()
	}
	value := ""
	if r.expires != 0 {
		value = strconv.FormatInt(r.expires, 10)
	}
	w.args = append(w.args, r.id, value)
	if w.v.Filter == filter.None {
		return nil
	}
	for block := form.Block(hash, w.v.BlockBits); w.block < block; {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	if n := len(w.keys); n == 0 || w.keys[n-1] != hash {
		w.keys = append(w.keys, hash)
	}
	return nil
}

func (w *writer) endSegment() {
	if w.segment >= w.journal.Segments {
		count := len(w.args) / 2
		w.args[0] = strconv.Itoa(count)
		w.next.keys = append(w.next.keys, w.to.segmentKey(w.List, w.v, w.segment))
		w.next.args = append(w.next.args, w.args)
		w.entries += count
		w.args = make([]string, 1, 2*w.to.cfg.Entries)
	}
	w.args = w.args[:1]
	w.segment++
	if w.entries >= w.to.entriesOfCall() || len(w.next.keys) == callSegments {
		w.send()
	}
}

func (w *writer) send() {
	b := w.next
	w.next, w.entries = &batch{}, 0
	w.calls.run(func() error { return w.to.write(w.ctx, w.Build, b) })
}

func (w *writer) endBlock() error {
	index := w.block
	w.block++
	keys := w.keys
	w.keys = w.keys[:0]
	if index < w.journal.Blocks {
		return nil
	}
	block, err := w.filters.Build(w.v.Filter, keys)
	if err != nil {
		return err
	}
	wire := block.Append(nil, w.v.Filter, w.Build, index, len(keys))
	w.v.FilterBytes += int64(len(wire))
	w.calls.run(func() error { return w.to.writeBlock(w.ctx, w.List, w.v, index, wire) })
	return nil
}

// checkpoint waits for all calls, and writes the journal.
func (w *writer) checkpoint() error {
	if err := w.calls.wait(); err != nil {
		return err
	}
	w.journal.Segments = max(w.journal.Segments, w.segment-uint32(len(w.next.keys)))
	w.journal.Blocks = max(w.journal.Blocks, w.block)
	if err := w.journal.save(w.dir); err != nil {
		return err
	}
	w.progress(StepWrite, int64(w.segment), int64(w.v.Segments))
	return w.ctx.Err()
}

func (w *writer) finish() error {
	for w.segment < w.v.Segments {
		w.endSegment()
	}
	if len(w.next.keys) > 0 {
		w.send()
	}
	for w.v.Filter != filter.None && w.block < 1<<w.v.BlockBits {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	return nil
}
