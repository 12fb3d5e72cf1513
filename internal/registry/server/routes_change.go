package server

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/registry"
)

func (r *routes) putOverride(ctx context.Context, in *bodyInput) (*output[Changed], error) {
	return handle(ctx, r, "override the instance", in, func(ctx context.Context, in *bodyInput) (out Changed, err error) {
		var request OverrideRequest
		if err := freeslot.DecodeStrict("override", in.RawBody, &request); err != nil {
			return out, err
		}
		o, err := request.override(ctx)
		if err != nil {
			return out, err
		}
		lasts := time.Duration(0)
		if request.ForMS != nil {
			lasts = time.Duration(*request.ForMS) * time.Millisecond
		}
		out.Revision, err = r.store.SetOverride(ctx, in.Service, in.ID, o, lasts, in.at())
		return out, err
	})
}

// at returns when the override was set that the caller saw; nil for any.
func (s *SeenOverride) at() *int64 {
	at, err := strconv.ParseInt(s.Seen, 10, 64)
	if err != nil { // it is absent: the pattern lets nothing else in
		return nil
	}
	return &at
}

// override returns the request in the form that is stored.
func (q *OverrideRequest) override(ctx context.Context) (*registry.Override, error) {
	var found freeslot.FieldErrors
	if q.Weight == nil && q.Enabled == nil && q.Draining == nil {
		found.Addf("override", "sets nothing, expected weight, enabled or draining")
	}
	if why := registry.CheckWeight(q.Weight); why != "" {
		found.Addf("weight", "%s", why)
	}
	line := func(field, s string) {
		if len(s) > maxNote || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			found.Addf(field, "is no line of at most %d bytes", maxNote)
		}
	}
	line("author", q.Author)
	line("note", q.Note)
	if q.ForMS != nil && (*q.ForMS <= 0 || *q.ForMS > maxOverride.Milliseconds()) {
		found.Addf(
			"for_ms", "is %d, expected 1 to %d, or none for an override that does not end by itself", *q.ForMS,
			maxOverride.Milliseconds(),
		)
	}
	return &registry.Override{
		Weight: q.Weight, Enabled: q.Enabled, Draining: q.Draining, Author: api.Author(ctx, q.Author, q.Note), Note: q.Note,
	}, found.Err()
}

func (r *routes) deleteOverride(ctx context.Context, in *resetInput) (*output[Changed], error) {
	return handle(ctx, r, "reset the instance", in, func(ctx context.Context, in *resetInput) (out Changed, err error) {
		out.Revision, err = r.store.SetOverride(ctx, in.Service, in.ID, nil, 0, in.at())
		return out, err
	})
}

func (r *routes) putCleanup(ctx context.Context, in *serviceBodyInput) (*output[struct{}], error) {
	return handle(ctx, r, "set the cleanup", in,
		func(ctx context.Context, in *serviceBodyInput) (out struct{}, err error) {
			var q CleanupRequest
			if err := freeslot.DecodeStrict("cleanup", in.RawBody, &q); err != nil {
				return out, err
			}
			var found freeslot.FieldErrors
			bounded := func(field string, ms *int64, least int64) *time.Duration {
				if ms == nil {
					return nil
				}
				if *ms != 0 && (*ms < least || *ms > 86_400_000) {
					found.Addf(field, "is %d, expected 0, or %d to 86400000", *ms, least)
				}
				return new(time.Duration(*ms) * time.Millisecond)
			}
			limit, every := bounded("limit_ms", q.LimitMS, minLimit.Milliseconds()), bounded("every_ms", q.EveryMS, 100)
			if limit == nil && every == nil {
				found.Addf("cleanup", "sets nothing, expected limit_ms or every_ms")
			}
			if err := found.Err(); err != nil {
				return out, err
			}
			return out, r.store.SetCleanup(ctx, in.Service, limit, every)
		})
}

func (r *routes) postInstance(ctx context.Context, in *serviceBodyInput) (*output[Changed], error) {
	return handle(ctx, r, "register the instance", in,
		func(ctx context.Context, in *serviceBodyInput) (out Changed, err error) {
			var q InstanceRequest
			if err := freeslot.DecodeStrict("instance", in.RawBody, &q); err != nil {
				return out, err
			}
			out.Revision, err = r.store.PutPersistent(ctx, registry.Registration{
				Service: in.Service, ID: q.ID, Host: q.Host, Port: q.Port, Protocol: q.Protocol, Weight: q.Weight,
				Persistent: true, Check: q.Check, Metadata: q.Metadata,
			})
			return out, err
		})
}

func (r *routes) deleteInstance(ctx context.Context, in *removeInput) (*output[Changed], error) {
	return handle(ctx, r, "remove the instance", in, func(ctx context.Context, in *removeInput) (out Changed, err error) {
		out.Revision, err = r.store.Remove(ctx, in.Service, in.ID, in.Epoch)
		return out, err
	})
}
