package v1

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
)

// Status says how far the migration of one service is.
type Status struct {
	Service string `json:"service"`
	V1Only  int    `json:"v1_only" doc:"Instances of the first version that have no copy: they do not beat, their record cannot be copied, or a provider of the second version has their id."`
	Copied  int    `json:"copied" doc:"Instances of the first version with a copy."`
	V2      int    `json:"v2" doc:"Instances of the second version."`
	Written int    `json:"written" doc:"How many were written back for old consumers."`
	// The tag documents SilentMS for readers of the API.
	SilentMS int64 `json:"silent_ms" doc:"How long no provider of the first version has beaten, as far as the bridge has watched; -1 where it has not."`
}

// Status returns the state of all services that the first version has.
func (b *Bridge) Status(ctx context.Context) (out []Status, err error) {
	found, err := b.known()
	if err != nil {
		return nil, err
	}
	now, err := b.db.now(ctx)
	if err != nil {
		return nil, err
	}
	watched, err := b.db.client.Do(ctx, b.db.client.B().Hgetall().Key(b.db.keys.watched()).Build()).AsStrMap()
	if err != nil {
		return nil, err
	}
	out = []Status{}
	for _, name := range found {
		one := Status{Service: name, SilentMS: -1}
		if ms, err := strconv.ParseInt(watched[name], 10, 64); err == nil {
			one.SilentMS = max(0, now.UnixMilli()-ms)
		}
		members, err := b.db.members(ctx, name)
		if err != nil {
			return nil, err
		}
		written, err := b.db.written(ctx, name, slices.Collect(maps.Keys(members)))
		if err != nil {
			return nil, err
		}
		second, _, err := instances(ctx, b.store, name)
		if err != nil {
			return nil, err
		}
		for _, d := range second {
			if d.Origin == registry.OriginV1 {
				one.Copied++
			} else {
				one.V2++
			}
		}
		for id := range members {
			if d := second[id]; !written[id] && (d == nil || d.Origin != registry.OriginV1) {
				one.V1Only++
			}
		}
		one.Written = len(written)
		out = append(out, one)
	}
	return out, nil
}

// known returns the services that the last search found.
func (b *Bridge) known() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.found == nil {
		return nil, &freeslot.Error{
			Code:    freeslot.CodeUnavailable,
			Message: "this replica still searches for services of the first version; try again soon",
		}
	}
	return slices.Clone(b.found), nil
}

// Finish removes the copies and the first version's keys. It refuses while instances are written
// back, or if a provider of the first version has sent a heartbeat in the last three intervals.
func (b *Bridge) Finish(ctx context.Context) (services int, err error) {
	if b.cfg.WriteBack {
		return 0, conflict("registry.v1.write_back is on; turn it off first, once no consumer of the first version is left")
	}
	all, err := b.Status(ctx)
	if err != nil {
		return 0, err
	}
	var beat []string
	for i := range all {
		s, silence := &all[i], 3*b.cfg.Interval
		if s.Copied+s.V1Only > 0 && time.Duration(s.SilentMS)*time.Millisecond < silence {
			beat = append(beat, s.Service)
		}
	}
	if len(beat) > 0 {
		return 0, conflict(fmt.Sprintf(
			"providers of the first version have beaten in the last %s, or were not watched for so long: %s", 3*b.cfg.Interval,
			strings.Join(beat, ", "),
		))
	}
	for i := range all {
		if err := b.finish(ctx, all[i].Service); err != nil {
			return i, err
		}
	}
	return len(all), b.db.client.Do(ctx, b.db.client.B().Del().Key(b.db.keys.watched()).Build()).Error()
}

func (b *Bridge) finish(ctx context.Context, name string) error {
	members, err := b.db.members(ctx, name)
	if err != nil {
		return err
	}
	second, _, err := instances(ctx, b.store, name)
	if err != nil {
		return err
	}
	maps.DeleteFunc(second, func(_ string, d *registry.Detail) bool { return d.Origin != registry.OriginV1 })
	if err := b.store.RemoveCopies(ctx, name, slices.Collect(maps.Keys(second))); err != nil {
		return err
	}
	var cmds []rueidis.Completed
	del := func(key string) { cmds = append(cmds, b.db.client.B().Del().Key(key).Build()) }
	for id := range members {
		del(b.db.keys.instance(name, id))
	}
	del(b.db.keys.scores(name))
	del(b.db.keys.members(name))
	_, err = b.db.multi(ctx, cmds)
	return err
}

func conflict(why string) error { return &freeslot.Error{Code: freeslot.CodeConflict, Message: why} }
