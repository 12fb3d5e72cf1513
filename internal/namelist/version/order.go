package version

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Hashed is an entry with the hash of its id.
type Hashed struct {
	namelist.Entry

	Hash uint64
}

// Compare orders entries in the order that [Segments.Ordered] yields.
func (h Hashed) Compare(other Hashed) int {
	return cmp.Or(cmp.Compare(h.Hash, other.Hash), cmp.Compare(h.ID, other.ID))
}

// errEnough ends a read if its caller wants no more.
var errEnough = errors.New("no more is wanted")

// Ordered goes through a version in the order of hashes, so that versions with different segments
// can be compared in one pass. It keeps one segment in memory. An error is the last thing that it
// yields; errors are as in [Segments.Read]. Without an error it has yielded all entries.
func (s *Segments) Ordered(
	ctx context.Context, list string, v *namelist.Version, seed uint64,
) iter.Seq2[Hashed, error] {
	return func(yield func(Hashed, error) bool) {
		var segment []Hashed
		of := uint32(0)
		flush := func() error {
			slices.SortFunc(segment, Hashed.Compare)
			for _, e := range segment {
				if !yield(e, nil) {
					return errEnough
				}
			}
			segment = segment[:0]
			return nil
		}
		err := s.Read(ctx, list, v, func(index uint32, id string, expires int64) error {
			if index != of {
				of = index
				if err := flush(); err != nil {
					return err
				}
			}
			segment = append(segment, Hashed{namelist.Entry{ID: id, ExpiresMS: expires}, form.Sum(seed, id)})
			return nil
		})
		if err == nil {
			err = flush()
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(Hashed{}, err)
		}
	}
}
