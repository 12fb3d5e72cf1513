package bulk

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

// errChanged is returned if somebody else changed the operation first.
var errChanged = errors.New("the operation was changed meanwhile")

// store keeps plans and operations. The errors of its methods come from Redis, except errChanged.
type store struct {
	runner *script.Runner
	keys   keys
}

func newStore(first *script.Runner) *store {
	first.Add(scripts)
	return &store{runner: first, keys: keysOf(first.Layout())}
}

// record is an operation as it was read.
type record struct {
	*BulkOperation
	seen string // its text; "" for a new one
	// nowMS was Redis' clock then, and readAt the time by this process' clock.
	nowMS  int64
	readAt time.Time
}

// now returns about Redis' clock.
func (r *record) now() int64 { return r.nowMS + time.Since(r.readAt).Milliseconds() }

// write stores the operation with its targets, unless they are nil.
func (s *store) write(ctx context.Context, r *record, targets []string) error {
	next := *r.BulkOperation
	next.Steps++
	text := next.encode()
	if err := s.put(ctx, r.ID, r.seen, text, targets); err != nil {
		return err
	}
	*r.BulkOperation, r.seen = next, text
	return nil
}

func (s *store) remove(ctx context.Context, r *record) error {
	return s.put(ctx, r.ID, r.seen, "", nil)
}

func (s *store) put(ctx context.Context, id, seen, text string, targets []string) error {
	keys := []string{s.keys.operations, s.keys.targets}
	args := []string{id, seen, text, strings.Join(targets, " ")}
	made, err := s.runner.Call(ctx, scripts["bulk_write"], keys, args).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("change operation %s: %w", id, err)
	case made == 0:
		return errChanged
	}
	return nil
}

// read returns the operation and its targets; a nil Operation if there is none.
func (s *store) read(ctx context.Context, id string) (r record, targets []string, err error) {
	reply, nowMS, err := s.call(ctx, id)
	if err != nil {
		return r, nil, fmt.Errorf("read operation %s: %w", id, err)
	}
	if r.nowMS, r.readAt = nowMS, time.Now(); len(reply) == 0 || reply[0] == "" {
		return r, nil, nil
	}
	r.seen = reply[0]
	if r.BulkOperation, err = decode(r.seen); err != nil {
		return r, nil, err
	}
	return r, strings.Fields(reply[1]), nil
}

// all returns all operations, the latest first. It leaves out what it cannot read.
func (s *store) all(ctx context.Context) (found []record, nowMS int64, err error) {
	reply, nowMS, err := s.call(ctx, "")
	if err != nil {
		return nil, 0, fmt.Errorf("read operations: %w", err)
	}
	for pair := range slices.Chunk(reply, 2) {
		if o, err := decode(pair[1]); err == nil && o.ID == pair[0] {
			found = append(found, record{BulkOperation: o, seen: pair[1], nowMS: nowMS, readAt: time.Now()})
		}
	}
	slices.SortFunc(found, func(a, b record) int { return strings.Compare(b.ID, a.ID) }) // ULIDs
	return found, nowMS, nil
}

// call returns the reply of bulk_read, and Redis' clock in it.
func (s *store) call(ctx context.Context, id string) (texts []string, nowMS int64, err error) {
	keys := []string{s.keys.operations, s.keys.targets}
	texts, err = s.runner.Call(ctx, scripts["bulk_read"], keys, []string{id}).AsStrSlice()
	if err == nil && len(texts)%2 != 1 {
		err = fmt.Errorf("%d values, expected one and pairs", len(texts))
	}
	if err != nil {
		return nil, 0, err
	}
	nowMS, err = strconv.ParseInt(texts[0], 10, 64)
	return texts[1:], nowMS, err
}
