package version

import (
	"context"
	"math/rand/v2"

	"github.com/freeslot/freeslot/internal/namelist"
)

// Sample returns up to count entries of random segments, in random order. Errors: *DamageError, or
// an error of Redis.
func (s *Segments) Sample(ctx context.Context, list string, v *namelist.Version, count int) ([]namelist.Entry, error) {
	var out []namelist.Entry
	parts := uint64(min(uint32(count), sampled, v.Segments))
	for i := range parts {
		// Take one segment from each part of the version, so that none is read twice.
		first, end := i*uint64(v.Segments)/parts, (i+1)*uint64(v.Segments)/parts
		segment := uint32(first + rand.Uint64N(end-first))
		got := s.readPage(ctx, list, v, segment, 1)
		if got.err != nil {
			return nil, got.err
		}
		err := open(got.segments[0], v.Build, func(id string, expires int64) error {
			out = append(out, namelist.Entry{ID: id, ExpiresMS: expires})
			return nil
		})
		if err != nil {
			return nil, damaged(list, v, segment, err)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(count, len(out))], nil
}
