package version

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/freeslot/freeslot/internal/namelist"
)

// unlinkKeys is the number of keys that one call unlinks on a single server.
const unlinkKeys = 500

// Unlink removes what a version has on the server. Keys of other builds stay. It returns the number
// of removed keys.
func (s *Segments) Unlink(ctx context.Context, list string, v *namelist.Version) (removed int64, err error) {
	return s.unlink(ctx, v.Build, func(yield func(key string)) {
		for i := range v.Segments {
			yield(s.segmentKey(list, v, i))
		}
		for i := range blocks(v) {
			yield(s.blockKey(list, v, i))
		}
	})
}

// unlink runs the script on all keys.
func (s *Segments) unlink(ctx context.Context, build string, all func(yield func(key string))) (int64, error) {
	raw, _ := hex.DecodeString(build) // a build id that is not hex has no block
	size, calls := unlinkKeys, newFlight(s.atOnce())
	if s.cfg.Cluster {
		size, calls = 1, newFlight(clusterCalls)
	}
	var removed atomic.Int64
	var keys []string
	send := func(keys []string) {
		calls.run(func() error {
			return s.paced(ctx, func() error {
				n, err := s.runner.Call(ctx, scripts["unlink"], keys, []string{build, string(raw)}).AsInt64()
				removed.Add(n)
				return err
			})
		})
	}
	all(func(key string) {
		if keys = append(keys, key); len(keys) == size {
			send(keys)
			keys = nil
		}
	})
	if len(keys) > 0 {
		send(keys)
	}
	err := calls.wait()
	if err != nil {
		err = fmt.Errorf("unlink a version: %w", err)
	}
	return removed.Load(), err
}
