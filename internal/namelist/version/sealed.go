package version

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/namelist"
)

// sealsOfCall is the number of seals that one call reads.
const sealsOfCall = 2000

// Sealed checks whether a version has all its segments, only by their seals and counts. It is much
// cheaper than [Segments.Verify]. Errors: *DamageError, or an error of Redis.
func (s *Segments) Sealed(ctx context.Context, list string, v *namelist.Version) error {
	total := int64(0)
	for first := uint32(0); first < v.Segments; first += sealsOfCall {
		n := min(sealsOfCall, v.Segments-first)
		err := s.paced(ctx, func() error {
			counted, err := s.seals(ctx, list, v, first, n)
			total += counted
			return err
		})
		if err != nil {
			return err
		}
	}
	if total != v.Count {
		return &DamageError{
			List: list, Number: v.Number, Why: fmt.Sprintf("its segments have %d entries, expected %d", total, v.Count),
		}
	}
	return nil
}

func (s *Segments) seals(
	ctx context.Context, list string, v *namelist.Version, first, n uint32,
) (total int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmds := make(rueidis.Commands, 0, 2*n)
	for i := range n {
		key := s.segmentKey(list, v, first+i)
		cmds = append(cmds, s.client.B().Hget().Key(key).Field("").Build(), s.client.B().Hlen().Key(key).Build())
	}
	answers := s.client.DoMulti(ctx, cmds...)
	for i := range n {
		seal, err := answers[2*i].ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return 0, fmt.Errorf("read the seal of segment %d of version %d of list %s: %w", first+i, v.Number, list, err)
		}
		has, err := answers[2*i+1].AsInt64()
		if err != nil {
			return 0, fmt.Errorf("count segment %d of version %d of list %s: %w", first+i, v.Number, list, err)
		}
		count, err := sealed(seal, v.Build)
		if err == nil && has != int64(count)+1 {
			err = fmt.Errorf("it has %d entries, and its seal says %d", has-1, count)
		}
		if err != nil {
			return 0, &DamageError{List: list, Number: v.Number, Why: fmt.Sprintf("segment %d: %v", first+i, err)}
		}
		total += int64(count)
	}
	return total, nil
}

// PlannedID is the length of ids that plans assume.
const PlannedID = 16

// Planned returns what a version with that many ids of that length needs, on a server with Redis'
// defaults.
func Planned(ids int64, idBytes int) (segments uint32, bytes int64) {
	s := Segments{cfg: SegmentsConfig{Entries: DefaultSegmentEntries}}
	return s.segmented(sorted{Count: ids, Bytes: ids * compactBytes(record{id: strings.Repeat("x", idBytes)})})
}
