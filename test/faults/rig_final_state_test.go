package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// reader reads what Redis holds of the fleet.
type reader struct {
	rueidis.Client
	ctx context.Context
}

// final reads all of it, with the job records where records is set.
func (f *fleet) final(ctx context.Context, records bool) (Final, error) {
	client, err := f.client()
	if err != nil {
		return Final{}, fmt.Errorf("connect to Redis: %w", err)
	}
	defer client.Close()
	r := reader{client, ctx}
	keys, err := r.keys()
	if err != nil {
		return Final{}, fmt.Errorf("list the keys: %w", err)
	}
	var out Final
	for _, key := range keys {
		kind, id := split(key)
		var left string
		switch {
		case kind == "jobs" && records:
			record, err := r.record(key, id)
			if err != nil {
				return Final{}, fmt.Errorf("read %s: %w", key, err)
			}
			if record.State != "moved" { // the record in its new cell counts
				out.Records = append(out.Records, record)
			}
		case kind == "slots":
			left, err = r.slots(key)
		case kind == "due", kind == "parked", kind == "moves", kind == "waiting" && id != "":
			left, err = r.line(key)
		case kind == "gate", kind == "drained":
			left, err = r.members(key)
		case kind == "gates":
			left, err = r.limits(key)
		case kind == "waiting", kind == "fair":
			left, err = r.hash(key)
		}
		if err != nil {
			return Final{}, fmt.Errorf("read %s: %w", key, err)
		}
		if left != "" {
			out.Leftovers = append(out.Leftovers, key+" has "+left)
		}
	}
	return out, nil
}

// split is a key's kind and what it is of: prefix:kind[:{tag}][:id].
func split(key string) (kind, id string) {
	kind, id, _ = strings.Cut(strings.TrimPrefix(key, prefix+":"), ":")
	if strings.HasPrefix(id, "{") {
		_, id, _ = strings.Cut(id, ":")
	}
	return kind, id
}

func (r reader) keys() ([]string, error) {
	keys := map[string]struct{}{} // a scan can return a key twice
	for _, node := range r.Nodes() {
		role, err := node.Do(r.ctx, node.B().Role().Build()).ToArray()
		if err != nil {
			return nil, err
		}
		if kind, _ := role[0].ToString(); kind != "master" {
			continue
		}
		if err := scan(r.ctx, node, keys); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(keys)), nil
}

// scan puts the keys of one server into a set.
func scan(ctx context.Context, node rueidis.Client, keys map[string]struct{}) error {
	for cursor := uint64(0); ; {
		page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(prefix+":*").Count(5000).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		for _, key := range page.Elements {
			keys[key] = struct{}{}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

func (r reader) record(key, id string) (Record, error) {
	fields, err := r.Do(r.ctx, r.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil {
		return Record{}, err
	}
	out := Record{Job: id, State: freeslot.State(fields["state"]), Error: fields["error"]}
	if run := fields["run"]; run != "" {
		var epoch string
		if _, err := fmt.Sscan(run, &out.Attempt, &out.Node, &epoch, &out.AssignedMS); err != nil {
			return Record{}, fmt.Errorf("run is %q: %w", run, err)
		}
	}
	if fails := fields["fails"]; fails != "" {
		if _, err := fmt.Sscan(fails, &out.Failures); err != nil {
			return Record{}, fmt.Errorf("fails is %q: %w", fails, err)
		}
	}
	var spec freeslot.Job
	var task Task
	if err := json.Unmarshal([]byte(fields["spec"]), &spec); err != nil {
		return Record{}, fmt.Errorf("spec is %q: %w", fields["spec"], err)
	}
	if err := json.Unmarshal(spec.Payload, &task); err != nil {
		return Record{}, fmt.Errorf("payload is %q: %w", spec.Payload, err)
	}
	out.N = task.N
	if result := fields["result"]; result != "" {
		out.Result = new(Result)
		if err := json.Unmarshal([]byte(result), out.Result); err != nil {
			return Record{}, fmt.Errorf("result is %q: %w", result, err)
		}
	}
	return out, nil
}

func (r reader) slots(key string) (string, error) {
	fields, err := r.Do(r.ctx, r.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil || len(fields) == 0 || len(fields) == 1 && strings.Trim(fields["sum"], "0") == "" {
		return "", err
	}
	return fmt.Sprint(fields), nil
}

func (r reader) line(key string) (string, error) {
	members, err := r.Do(r.ctx, r.B().Zrange().Key(key).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil || len(members) == 0 {
		return "", err
	}
	return fmt.Sprintf("%d: %s", len(members), strings.Join(members[:min(len(members), 5)], " ")), nil
}

func (r reader) members(key string) (string, error) {
	members, err := r.Do(r.ctx, r.B().Smembers().Key(key).Build()).AsStrSlice()
	return strings.Join(members, " "), err
}

// limits belong to concurrency keys, which must be forgotten with their last job. Limits of
// tenants stay.
func (r reader) limits(key string) (string, error) {
	fields, err := r.Do(r.ctx, r.B().Hgetall().Key(key).Build()).AsStrMap()
	maps.DeleteFunc(fields, func(name, _ string) bool { return !strings.HasPrefix(name, "k:") })
	if err != nil || len(fields) == 0 {
		return "", err
	}
	return fmt.Sprint(fields), nil
}

func (r reader) hash(key string) (string, error) {
	fields, err := r.Do(r.ctx, r.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil || len(fields) == 0 {
		return "", err
	}
	return fmt.Sprint(fields), nil
}
