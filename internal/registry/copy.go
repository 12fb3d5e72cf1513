package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/redis/rueidis"
)

// OriginV1 is the origin of copies from the registry's first version.
const OriginV1 = "v1"

// copyEpoch is the epoch of all copies: it does not matter which replica makes a copy.
const copyEpoch = "v1"

// Copy is an instance of the registry's first version. Metrics are JSON, nil for none.
type Copy struct {
	Registration
	Metrics json.RawMessage
}

// PutCopies registers copies of one service, or updates them; each is also a heartbeat. The
// registrations must be valid. An id that a provider holds stays the provider's.
func (s *Store) PutCopies(ctx context.Context, service string, copies []Copy) error {
	full := false
	for page := range slices.Chunk(copies, callItems) {
		items := make([]registerItem, len(page))
		for i := range page {
			fields, _ := page[i].fields()
			items[i] = registerItem{
				id: page[i].ID, epoch: copyEpoch, metrics: string(page[i].Metrics), fields: append(fields, "origin", OriginV1),
			}
		}
		got, err := s.c.register(ctx, service, false, items)
		if err != nil {
			return err
		}
		for _, a := range got {
			full = full || a.code == codeFull
		}
	}
	if full {
		return errFull
	}
	return nil
}

// RemoveCopies deregisters copies. It ignores ids that are gone or are not copies.
func (s *Store) RemoveCopies(ctx context.Context, service string, ids []string) error {
	for page := range slices.Chunk(ids, callItems) {
		items := make([]deregisterItem, len(page))
		for i, id := range page {
			items[i] = deregisterItem{id: id, epoch: copyEpoch}
		}
		if _, err := s.c.deregister(ctx, service, reasonDeregistered, items); err != nil {
			return err
		}
	}
	return nil
}

// Revision returns the revision of a service, 0 if it has no record.
func (s *Store) Revision(ctx context.Context, service string) (int64, error) {
	runner, k := s.c.of(service)
	n, err := runner.Do(
		ctx, "registry_revision", runner.B().Hget().Key(k.record(service)).Field("revision").Build(),
	).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return 0, fmt.Errorf("revision of service %s: %w", service, err)
	}
	return n, nil
}
