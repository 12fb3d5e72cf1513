package v1

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

const (
	// pageSize is how many members, or keys, one call goes through. scanPause is the pause between
	// pages of keys: it allows 50,000 keys/s, so that finding services costs a server little.
	pageSize    = 1000
	scanPause   = 20 * time.Millisecond
	callTimeout = 2 * time.Second
)

// db reads and writes the first version's keys.
type db struct {
	client rueidis.Client
	keys   keys
}

// services finds the services of the first version. It goes through all keys of all masters.
func (d *db) services(ctx context.Context) (out []string, err error) {
	for addr, node := range d.client.Nodes() {
		names, err := d.scan(ctx, node)
		if err != nil {
			return nil, fmt.Errorf("find services at %s: %w", addr, err)
		}
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// scan finds the services that have keys on one server, if that is a master.
func (d *db) scan(ctx context.Context, node rueidis.Client) (out []string, err error) {
	do := func(cmd rueidis.Completed) rueidis.RedisResult {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return node.Do(ctx, cmd)
	}
	role, err := do(node.B().Role().Build()).ToArray()
	if err != nil || len(role) == 0 {
		return nil, err
	}
	if text, _ := role[0].ToString(); text != "master" {
		return nil, nil
	}
	prefix := d.keys.members("")
	for cursor := uint64(0); ; {
		page, err := do(node.B().Scan().Cursor(cursor).Match(glob(prefix) + "*").Count(pageSize).Build()).AsScanEntry()
		if err != nil {
			return nil, err
		}
		for _, key := range page.Elements {
			if name := key[len(prefix):]; freeslot.ValidateName("service", name) == nil {
				out = append(out, name)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(scanPause):
		}
	}
}

// glob escapes the characters that have a meaning in a pattern of Redis.
func glob(text string) string {
	var out []byte
	for _, c := range []byte(text) {
		if c == '*' || c == '?' || c == '[' || c == ']' || c == '\\' || c == '^' {
			out = append(out, '\\')
		}
		out = append(out, c)
	}
	return string(out)
}

// members returns the ids of a service, with their scores if they have any.
func (d *db) members(ctx context.Context, service string) (out map[string]string, err error) {
	out = make(map[string]string)
	for cursor := uint64(0); ; {
		page, err := d.client.Do(
			ctx, d.client.B().Sscan().Key(d.keys.members(service)).Cursor(cursor).Count(pageSize).Build(),
		).AsScanEntry()
		if err != nil {
			return nil, fmt.Errorf("first version's instances of %s: %w", service, err)
		}
		for _, id := range page.Elements {
			out[id] = ""
		}
		if cursor = page.Cursor; cursor == 0 {
			break
		}
	}
	for cursor := uint64(0); len(out) > 0; {
		page, err := d.client.Do(
			ctx, d.client.B().Zscan().Key(d.keys.scores(service)).Cursor(cursor).Count(pageSize).Build(),
		).AsScanEntry()
		if err != nil {
			return nil, fmt.Errorf("first version's heartbeats of %s: %w", service, err)
		}
		for e := page.Elements; len(e) >= 2; e = e[2:] {
			if _, member := out[e[0]]; member {
				out[e[0]] = e[1]
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			break
		}
	}
	return out, nil
}

// multi sends commands in pages, each with one key.
func (d *db) multi(ctx context.Context, cmds []rueidis.Completed) (out []rueidis.RedisResult, err error) {
	for page := range slices.Chunk(cmds, pageSize) {
		for _, result := range d.client.DoMulti(ctx, page...) {
			if err := result.Error(); err != nil && !rueidis.IsRedisNil(err) {
				return nil, fmt.Errorf("first version's keys: %w", err)
			}
			out = append(out, result)
		}
	}
	return out, nil
}

// records returns the hashes of ids.
func (d *db) records(ctx context.Context, service string, ids []string) (out []map[string]string, err error) {
	cmds := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		cmds[i] = d.client.B().Hgetall().Key(d.keys.instance(service, id)).Build()
	}
	results, err := d.multi(ctx, cmds)
	for _, r := range results {
		record, err := r.AsStrMap()
		if err != nil {
			return nil, err
		}
		out = append(out, record)
	}
	return out, err
}

// written returns which of ids a bridge wrote.
func (d *db) written(ctx context.Context, service string, ids []string) (out map[string]bool, err error) {
	cmds := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		cmds[i] = d.client.B().Hget().Key(d.keys.instance(service, id)).Field(originField).Build()
	}
	results, err := d.multi(ctx, cmds)
	out = make(map[string]bool)
	for i, r := range results {
		if origin, _ := r.ToString(); origin == originV2 {
			out[ids[i]] = true
		}
	}
	return out, err
}

// put writes an instance. The score comes first and the set last, so that no reader sees a
// half-written one.
func (d *db) put(service, id, score string, record []string) []rueidis.Completed {
	b := d.client.B()
	set := b.Hset().Key(d.keys.instance(service, id)).FieldValue()
	for f := record; len(f) >= 2; f = f[2:] {
		set = set.FieldValue(f[0], f[1])
	}
	ms, _ := strconv.ParseFloat(score, 64)
	return []rueidis.Completed{
		set.Build(),
		d.client.B().Zadd().Key(d.keys.scores(service)).ScoreMember().ScoreMember(ms, id).Build(),
		d.client.B().Sadd().Key(d.keys.members(service)).Member(id).Build(),
	}
}

// remove takes an instance away.
func (d *db) remove(service, id string) []rueidis.Completed {
	return []rueidis.Completed{
		d.client.B().Srem().Key(d.keys.members(service)).Member(id).Build(),
		d.client.B().Zrem().Key(d.keys.scores(service)).Member(id).Build(),
		d.client.B().Del().Key(d.keys.instance(service, id)).Build(),
	}
}

// announce informs old consumers.
func (d *db) announce(ctx context.Context, service, kind string, ids []string, at time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{
		"serviceName": service, "changeType": kind, "instances": ids, "timestamp": at.UnixMilli(),
	})
	if err != nil {
		return err
	}
	return d.client.Do(ctx, d.client.B().Publish().Channel(d.keys.change(service)).Message(string(text)).Build()).Error()
}

// now returns Redis' time.
func (d *db) now(ctx context.Context) (time.Time, error) {
	parts, err := d.client.Do(ctx, d.client.B().Time().Build()).AsIntSlice()
	if err != nil || len(parts) != 2 {
		return time.Time{}, fmt.Errorf("redis' time: %w", err)
	}
	return time.Unix(parts[0], parts[1]*1000), nil
}

// watch records that a provider of the first version has just beaten, or that its bridge begins.
func (d *db) watch(ctx context.Context, service string) error {
	now, err := d.now(ctx)
	if err != nil {
		return err
	}
	return d.client.Do(
		ctx,
		d.client.B().Hset().Key(d.keys.watched()).FieldValue().FieldValue(
			service, strconv.FormatInt(now.UnixMilli(), 10),
		).Build(),
	).Error()
}
