package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	// callTimeout bounds a call to a list server that has no deadline of its own.
	callTimeout = 10 * time.Second
	// callEntries is the number of entries that one call writes or reads: Redis answers no one else
	// meanwhile. A call takes Redis about 2 ms, a paced one 0.2 ms.
	callEntries, pacedEntries = 4000, 400
	// callsAtOnce keeps a server busy while the next call is made; clusterCalls is for calls of one
	// key.
	callsAtOnce, clusterCalls = 2, 32
	// DefaultSegmentEntries is Redis' default of hash-max-listpack-entries. Lua passes on at most
	// 8,000 arguments, and reading long listpacks is slow.
	DefaultSegmentEntries = 128
	maxSegmentEntries     = 1024
)

// DamageError is returned for versions that are not as they were written.
type DamageError struct {
	List   string
	Number int64
	Why    string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("version %d of list %s is damaged: %s", e.Number, e.List, e.Why)
}

// SegmentsConfig says how a list server is used.
type SegmentsConfig struct {
	// Prefix is the first part of all keys.
	Prefix  string
	Cluster bool
	// Entries is the server's hash-max-listpack-entries, or less; 0 means DefaultSegmentEntries. At
	// most maxSegmentEntries are used.
	Entries int
	// Pace, if set, is called after each call of a build with the time that the call took. It
	// returns when the next call may begin, or an error, which ends the build. It is for servers
	// that also carry jobs; calls are then smaller, and made one at a time.
	Pace func(ctx context.Context, took time.Duration) error
}

// Segments is a list server, with the segments and filter blocks of versions. It is safe for
// concurrent use.
type Segments struct {
	cfg    SegmentsConfig
	client rueidis.Client
	runner *script.Runner
}

// NewSegments uses client, which the caller owns. It does no I/O. reg may be nil; a second call
// with the same registerer panics.
func NewSegments(cfg SegmentsConfig, client rueidis.Client, log *zap.Logger, reg prometheus.Registerer) *Segments {
	cfg.Entries = min(cmp.Or(cfg.Entries, DefaultSegmentEntries), maxSegmentEntries)
	layout := script.Layout{Prefix: cfg.Prefix, Sharded: cfg.Cluster}
	return &Segments{
		cfg: cfg, client: client,
		runner: script.NewRunner(script.Config{Layout: layout, CallTimeout: callTimeout}, client, log, reg),
	}
}

func (s *Segments) segmentKey(list string, v *namelist.Version, segment uint32) string {
	return namelist.SegmentKey(s.cfg.Prefix, list, v.Number, segment)
}

func (s *Segments) blockKey(list string, v *namelist.Version, block uint32) string {
	return namelist.BlockKey(s.cfg.Prefix, list, v.Number, block)
}

// blocks returns the number of blocks of a version's filter.
func blocks(v *namelist.Version) uint32 {
	if v.FilterBytes == 0 {
		return 0
	}
	return 1 << v.BlockBits
}

func (s *Segments) atOnce() int {
	if s.cfg.Pace != nil {
		return 1
	}
	return callsAtOnce
}

func (s *Segments) entriesOfCall() int {
	if s.cfg.Pace != nil {
		return pacedEntries
	}
	return callEntries
}

// paced makes a call, and then lets Pace wait.
func (s *Segments) paced(ctx context.Context, call func() error) error {
	begin := time.Now()
	if err := call(); err != nil || s.cfg.Pace == nil {
		return err
	}
	return s.cfg.Pace(ctx, time.Since(begin))
}

// batch holds consecutive segments.
type batch struct {
	keys []string
	// args holds for each segment what the script takes: the number of entries, ids and values.
	args [][]string
}

// write replaces the segments of a batch on the server.
func (s *Segments) write(ctx context.Context, build string, b *batch) error {
	return s.paced(ctx, func() error {
		if !s.cfg.Cluster {
			return s.writeCall(ctx, build, b.keys, b.args)
		}
		calls := newFlight(clusterCalls)
		for i := range b.keys {
			calls.run(func() error { return s.writeCall(ctx, build, b.keys[i:i+1], b.args[i:i+1]) })
		}
		return calls.wait()
	})
}

func (s *Segments) writeCall(ctx context.Context, build string, keys []string, args [][]string) error {
	has, err := s.runner.Call(
		ctx, scripts["segments"], keys, slices.Concat(append([][]string{{build}}, args...)...),
	).AsIntSlice()
	if err != nil {
		return fmt.Errorf("write segments from %s on: %w", keys[0], err)
	}
	for i, key := range keys {
		if len(has) != len(keys) || strconv.FormatInt(has[i], 10) != args[i][0] {
			return fmt.Errorf("write segment %s: redis has %v entries, expected %s", key, has, args[i][0])
		}
	}
	return nil
}

func (s *Segments) writeBlock(ctx context.Context, list string, v *namelist.Version, block uint32, wire []byte) error {
	key := s.blockKey(list, v, block)
	return s.paced(ctx, func() error {
		if err := s.runner.Do(
			ctx, "lists_block", s.runner.B().Set().Key(key).Value(rueidis.BinaryString(wire)).Build(),
		).Error(); err != nil {
			return fmt.Errorf("write block %s: %w", key, err)
		}
		return nil
	})
}

// Block returns the wire form of a block, for filter.Decode; nil if there is none.
func (s *Segments) Block(ctx context.Context, list string, v *namelist.Version, block uint32) ([]byte, error) {
	wire, err := s.runner.Do(ctx, "lists_block", s.runner.B().Get().Key(s.blockKey(list, v, block)).Build()).AsBytes()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return wire, err
}

// Lookup reads ids of one segment: found[i] is an expiry in ms, 0 for never, or -1 if the segment
// does not have the id. Errors: *DamageError if the segment does not belong to this build, or an
// error of Redis.
func (s *Segments) Lookup(
	ctx context.Context, list string, v *namelist.Version, segment uint32, ids []string,
) (found []int64, err error) {
	cmd := s.runner.B().Hmget().Key(s.segmentKey(list, v, segment)).Field("").Field(ids...).Build()
	values, err := s.runner.Do(ctx, "lists_lookup", cmd).ToArray()
	if err != nil {
		return nil, fmt.Errorf("read segment %d of version %d of list %s: %w", segment, v.Number, list, err)
	}
	seal, _ := values[0].ToString()
	if _, err := sealed(seal, v.Build); err != nil {
		return nil, damaged(list, v, segment, err)
	}
	found = make([]int64, len(ids))
	for i, value := range values[1:] {
		if value.IsNil() {
			found[i] = -1
			continue
		}
		text, _ := value.ToString()
		if found[i], err = expiryOf(text); err != nil {
			return nil, damaged(list, v, segment, err)
		}
	}
	return found, nil
}

// Ask runs [namelist.Ask] on this server. Readers wait for it, so it is not paced.
func (s *Segments) Ask(
	ctx context.Context, list string, v *namelist.Version, ids []string, hashes []uint64,
) []namelist.ListFound {
	return namelist.Ask(ctx, s.client, s.cfg.Prefix, list, v, ids, hashes)
}

// Whole runs [namelist.Whole] on this server.
func (s *Segments) Whole(ctx context.Context, list string, v *namelist.Version) (map[string]int64, error) {
	return namelist.Whole(ctx, s.client, s.cfg.Prefix, list, v)
}

// brokenError says what is wrong with a segment.
type brokenError string

func (e brokenError) Error() string { return string(e) }

// damaged makes a DamageError of a brokenError, and leaves other errors.
func damaged(list string, v *namelist.Version, segment uint32, err error) error {
	if broken, ok := errors.AsType[brokenError](err); ok {
		return &DamageError{List: list, Number: v.Number, Why: fmt.Sprintf("segment %d %s", segment, broken)}
	}
	return err
}

// sealed returns the count in a seal of this build, or a brokenError.
func sealed(seal, build string) (count int, err error) {
	of, count, ok := namelist.ParseSeal(seal)
	switch {
	case seal == "":
		return 0, brokenError("has no seal")
	case of != build:
		return 0, brokenError(fmt.Sprintf("is of build %.32q, expected %s", of, build))
	case !ok:
		return 0, brokenError(fmt.Sprintf("has the seal %.64q", seal))
	default:
		return count, nil
	}
}

func expiryOf(value string) (int64, error) {
	ms, ok := namelist.ParseExpiry(value)
	if !ok {
		return 0, brokenError(fmt.Sprintf("has an entry with the value %.32q", value))
	}
	return ms, nil
}
