package version

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
)

// scanKeys is about the number of a server's keys that one call looks through.
const scanKeys = 500

// Rest is a Pace that rests three times as long as the call took.
func Rest(ctx context.Context, took time.Duration) error {
	timer := time.NewTimer(3 * took)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Resting returns the same server, but paced, for work that is not urgent.
func (s *Segments) Resting() *Segments {
	if s.cfg.Pace != nil {
		return s
	}
	paced := *s
	paced.cfg.Pace = Rest
	return &paced
}

// Key is a segment or a block of some version.
type Key struct {
	List    string
	Version int64
	name    string
	block   bool
}

// Keys looks through a part of the server for segments and blocks. Begin with an empty cursor; the
// scan is over when Keys returns an empty one. Some keys may come twice.
func (s *Segments) Keys(ctx context.Context, cursor string) (keys []Key, next string, err error) {
	nodes := s.client.Nodes()
	addrs := slices.Sorted(maps.Keys(nodes))
	addr, text, _ := strings.Cut(cursor, " ")
	addr = cmp.Or(addr, addrs[0])
	at, err := strconv.ParseUint(cmp.Or(text, "0"), 10, 64)
	if nodes[addr] == nil || err != nil {
		return nil, "", freeslot.Invalid(
			"after", "has the cursor %q, and the nodes of the list server are %q: begin anew", cursor, addrs,
		)
	}
	err = s.paced(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		node := nodes[addr]
		if at == 0 { // a replica has the same keys as its master
			info, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
			if err != nil || strings.Contains(info, "role:slave") {
				return err
			}
		}
		got, err := node.Do(
			ctx, node.B().Scan().Cursor(at).Match(namelist.DataPattern(s.cfg.Prefix)).Count(scanKeys).Build(),
		).AsScanEntry()
		if err != nil {
			return fmt.Errorf("look through %s: %w", addr, err)
		}
		for _, name := range got.Elements {
			if list, version, block, ok := namelist.ParseDataKey(s.cfg.Prefix, name); ok {
				keys = append(keys, Key{list, version, name, block})
			}
		}
		at = got.Cursor
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if at == 0 {
		i := slices.Index(addrs, addr) + 1
		if i == len(addrs) {
			return keys, "", nil
		}
		addr = addrs[i]
	}
	return keys, addr + " " + strconv.FormatUint(at, 10), nil
}

// Builds returns the builds that have written keys, with their keys. It leaves out keys without a
// build id.
func (s *Segments) Builds(ctx context.Context, keys []Key) (builds map[string][]Key, err error) {
	if len(keys) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	builds = make(map[string][]Key)
	err = s.paced(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		cmds := make(rueidis.Commands, len(keys))
		for i, k := range keys {
			if k.block {
				cmds[i] = s.client.B().Getrange().Key(k.name).Start(8).End(23).Build()
			} else {
				cmds[i] = s.client.B().Hget().Key(k.name).Field("").Build()
			}
		}
		for i, answer := range s.client.DoMulti(ctx, cmds...) {
			text, err := answer.ToString()
			_, refused := rueidis.IsRedisErr(err)
			if err != nil && !refused && !rueidis.IsRedisNil(err) { // nil: the key was removed meanwhile
				return fmt.Errorf("read the build of %s: %w", keys[i].name, err)
			}
			if keys[i].block {
				text = hex.EncodeToString([]byte(text))
			}
			if of, _, _ := strings.Cut(text, " "); err == nil && len(of) == 32 {
				builds[of] = append(builds[of], keys[i])
			}
		}
		return nil
	})
	return builds, err
}

// UnlinkKeys removes the keys that this build has written.
func (s *Segments) UnlinkKeys(ctx context.Context, build string, keys []Key) (removed int64, err error) {
	return s.unlink(ctx, build, func(yield func(key string)) {
		for _, k := range keys {
			yield(k.name)
		}
	})
}
