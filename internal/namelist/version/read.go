package version

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Read calls yield for each entry of a version, in the order of segments; done is the number of
// segments read before. It checks each seal and its count, and at the end the version's count and
// digest. Until it returns nil, what it yielded may be incomplete. Errors: *DamageError, or an
// error of yield or Redis.
func (s *Segments) Read(
	ctx context.Context, list string, v *namelist.Version, yield func(done uint32, id string, expires int64) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan page)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		defer close(pages)
		size := uint32(max(1, 2*s.entriesOfCall()/s.cfg.Entries))
		for first := uint32(0); first < v.Segments && ctx.Err() == nil; first += size {
			select {
			case pages <- s.readPage(ctx, list, v, first, min(size, v.Segments-first)):
			case <-ctx.Done():
			}
		}
	})
	var digest form.Digest
	for p := range pages {
		if p.err != nil {
			return p.err
		}
		for i, fields := range p.segments {
			segment := p.first + uint32(i)
			err := open(fields, v.Build, func(id string, expires int64) error {
				digest.Add(id, expires)
				return yield(segment, id, expires)
			})
			if err != nil {
				return damaged(list, v, segment, err)
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case digest.Count() != v.Count || digest.String() != v.Digest:
		return &DamageError{
			List: list, Number: v.Number, Why: fmt.Sprintf("its digest is %s, expected %s", &digest, v.Digest),
		}
	}
	return nil
}

// page holds segments that one call has read.
type page struct {
	first    uint32
	segments []map[string]string
	err      error
}

func (s *Segments) readPage(ctx context.Context, list string, v *namelist.Version, first, n uint32) page {
	got := page{first: first, segments: make([]map[string]string, n)}
	got.err = s.paced(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		cmds := make([]rueidis.Completed, n)
		for i := range cmds {
			cmds[i] = s.client.B().Hgetall().Key(s.segmentKey(list, v, first+uint32(i))).Build()
		}
		for i, answer := range s.client.DoMulti(ctx, cmds...) {
			fields, err := answer.AsStrMap()
			if err != nil {
				return fmt.Errorf("read segment %d of version %d of list %s: %w", first+uint32(i), v.Number, list, err)
			}
			got.segments[i] = fields
		}
		return nil
	})
	return got
}

// open calls yield for each entry of a complete segment.
func open(fields map[string]string, build string, yield func(id string, expires int64) error) error {
	count, err := sealed(fields[""], build)
	if err != nil {
		return err
	}
	if len(fields)-1 != count {
		return brokenError(fmt.Sprintf("has %d entries, and its seal says %d", len(fields)-1, count))
	}
	for id, value := range fields {
		if id == "" {
			continue
		}
		expires, err := expiryOf(value)
		if err == nil {
			err = yield(id, expires)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Verify reads a version back: all seals and counts, the digest, and each block's checksum.
// progress gets the number of segments read. Errors: *DamageError, or an error of Redis.
func (s *Segments) Verify(ctx context.Context, list string, v *namelist.Version, progress func(done uint32)) error {
	err := s.Read(ctx, list, v, func(done uint32, _ string, _ int64) error {
		progress(done)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range blocks(v) {
		wire, err := s.Block(ctx, list, v, i)
		if err != nil {
			return err
		}
		if _, err := filter.Decode(wire, v.Build, i); err != nil {
			return &DamageError{List: list, Number: v.Number, Why: fmt.Sprintf("block %d: %v", i, err)}
		}
	}
	return nil
}
