package build

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/namelist"
)

// unlinkKeys is how many keys of a single server a call unlinks, or looks through.
const unlinkKeys = 500

// Unlink removes what a version has on the server. Keys of other builds stay. It returns how many
// keys were removed.
func (s *Segments) Unlink(ctx context.Context, list string, v *namelist.Version) (removed int64, err error) {
	return s.unlink(ctx, v.Build, func(yield func(key string)) error {
		for i := range v.Segments {
			yield(s.segmentKey(list, v, i))
		}
		for i := range blocks(v) {
			yield(s.blockKey(list, v, i))
		}
		return nil
	})
}

// Sweep is Unlink for a build that will not be finished, of which only the number and build id are
// known. It looks through all keys of the server.
func (s *Segments) Sweep(ctx context.Context, list string, number int64, build string) (removed int64, err error) {
	return s.unlink(ctx, build, func(yield func(key string)) error {
		for _, node := range s.client.Nodes() {
			if err := scan(ctx, node, namelist.DataKey(s.cfg.Prefix, list, number, "*}"), yield); err != nil {
				return err
			}
		}
		return nil
	})
}

func scan(ctx context.Context, node rueidis.Client, pattern string, yield func(key string)) error {
	for cursor := uint64(0); ; {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		got, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(unlinkKeys).Build()).AsScanEntry()
		cancel()
		if err != nil {
			return err
		}
		for _, key := range got.Elements {
			yield(key)
		}
		if cursor = got.Cursor; cursor == 0 {
			return nil
		}
	}
}

// unlink runs the script on all keys.
func (s *Segments) unlink(ctx context.Context, build string, all func(yield func(key string)) error) (int64, error) {
	raw, _ := hex.DecodeString(build) // of a text that is not hex there is no block
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
	found := all(func(key string) {
		if keys = append(keys, key); len(keys) == size {
			send(keys)
			keys = nil
		}
	})
	if len(keys) > 0 {
		send(keys)
	}
	err := calls.wait()
	if err == nil {
		err = found
	}
	if err != nil {
		err = fmt.Errorf("unlink a version: %w", err)
	}
	return removed.Load(), err
}
