package registry

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// callItems is the largest number of items in one call.
const callItems = 64

// Codes that scripts return.
const (
	codeDone   = 1 // beaten, changed, removed
	codeSame   = 2 // of register and verdict
	codeDiffer = 2 // of heartbeat
	codeHolder = 3 // another epoch has the id
	codeGone   = 4 // it is not there
	codeFull   = 5 // no memory, or too many
	codeOther  = 6 // of override: another one is there than the caller saw
)

var errFull = &freeslot.Error{
	Code:    freeslot.CodeOverloaded,
	Message: "redis has no memory left for changes of the registry; raise maxmemory or remove other data",
}

// answer is the outcome of one item of a call.
type answer struct {
	code int
	// revision is the service's, set with codeDone if the call changes the service.
	revision int64
	// registered is when the instance was registered; with codeHolder, when the holder was. Redis'
	// ms.
	registered int64
	// holder is set with codeHolder. replaced is true if it has taken the id from the caller's
	// epoch.
	holder   *HolderError
	replaced bool
}

// supersedes reports whether the answer ends an instance that was registered at since, Redis' ms:
// its holder registered later, or has taken the id from the instance.
func (a *answer) supersedes(since int64) bool {
	return a.code == codeHolder && (a.replaced || since != 0 && a.registered >= since)
}

// registerItem is one instance to register.
type registerItem struct {
	id, epoch string
	// replaces is the epoch of the holder that the caller takes the id from, or empty.
	replaces string
	// since is when the epoch first registered the instance, Redis' ms; 0 for never.
	since int64
	// metrics is JSON, or empty.
	metrics string
	// fields holds the provider's own fields, as Registration.fields makes them.
	fields []string
}

// register runs register.lua. No id may occur twice. Answers: codeDone with the revision, codeSame,
// codeHolder, codeFull.
func (c *conn) register(ctx context.Context, service string, flat bool, items []registerItem) ([]answer, error) {
	return halved(c, items, func(items []registerItem) ([]answer, error) {
		runner, k := c.of(service)
		keys := append(k.changing(service), k.checked(), k.replaced(service))
		args := []string{service, random64(), k.change(service), k.metrics(service), flag(flat)}
		ids := make([]string, len(items))
		for i, it := range items {
			ids[i] = it.id
			keys = append(keys, k.instance(service, it.id))
			args = append(
				args, it.id, it.epoch, it.replaces, strconv.FormatInt(it.since, 10), it.metrics, strconv.Itoa(len(it.fields)),
			)
			args = append(args, it.fields...)
		}
		return answers(
			service, ids, runner.Call(ctx, scripts["register"], keys, args), codeDone, codeSame, codeHolder, codeFull,
		)
	})
}

// beatItem is one heartbeat.
type beatItem struct{ id, epoch, content, metrics string }

// heartbeat runs heartbeat.lua. Answers: codeDone, codeDiffer, codeHolder, codeGone.
func (c *conn) heartbeat(ctx context.Context, service string, flat bool, items []beatItem) ([]answer, error) {
	return halved(c, items, func(items []beatItem) ([]answer, error) {
		runner, k := c.of(service)
		keys, args := make([]string, 1, 1+len(items)), make([]string, 2, 2+4*len(items))
		keys[0], args[0], args[1] = k.heartbeats(service), k.metrics(service), flag(flat)
		ids := make([]string, len(items))
		for i, it := range items {
			ids[i] = it.id
			keys = append(keys, k.instance(service, it.id))
			args = append(args, it.id, it.epoch, it.content, it.metrics)
		}
		return answers(
			service, ids, runner.Call(ctx, scripts["heartbeat"], keys, args), codeDone, codeDiffer, codeHolder, codeGone,
		)
	})
}

// deregisterItem is one instance to remove; an empty epoch means any.
type deregisterItem struct{ id, epoch string }

// The reasons of deregister.
const (
	reasonDeregistered = "deregistered"
	reasonChecksFailed = "checks_failed"
	reasonOperator     = "removed_by_operator"
)

// deregister runs deregister.lua. No id may occur twice. Answers: codeDone with the revision,
// codeHolder, codeGone.
func (c *conn) deregister(ctx context.Context, service, reason string, items []deregisterItem) ([]answer, error) {
	return halved(c, items, func(items []deregisterItem) ([]answer, error) {
		runner, k := c.of(service)
		keys, args := k.changing(service), []string{service, random64(), k.change(service), reason}
		ids := make([]string, len(items))
		for i, it := range items {
			ids[i] = it.id
			keys = append(keys, k.instance(service, it.id))
			args = append(args, it.id, it.epoch)
		}
		return answers(service, ids, runner.Call(ctx, scripts["deregister"], keys, args), codeDone, codeHolder, codeGone)
	})
}

// changing returns the first keys of each script that changes instances.
func (k keys) changing(service string) []string {
	return []string{k.services(), k.heartbeats(service), k.record(service), k.changes(service), k.overrides(service)}
}

// halved makes a call in smaller parts while a hash slot migrates: Redis then refuses calls whose
// keys are on two servers.
func halved[In any](c *conn, items []In, call func([]In) ([]answer, error)) ([]answer, error) {
	out, err := call(items)
	var refused *rueidis.RedisError
	if len(items) < 2 || !errors.As(err, &refused) || !refused.IsTryAgain() {
		return out, c.explain(err, script.RoleRegistry)
	}
	first, err := halved(c, items[:len(items)/2], call)
	if err != nil {
		return nil, err
	}
	second, err := halved(c, items[len(items)/2:], call)
	return append(first, second...), err
}

// answers decodes an answer for each of ids: a code, or an array that begins with one.
func answers(service string, ids []string, result rueidis.RedisResult, codes ...int) ([]answer, error) {
	values, err := result.ToArray()
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	if len(values) != len(ids) {
		return nil, fmt.Errorf("service %s: %d answers for %d instances", service, len(values), len(ids))
	}
	out := make([]answer, len(ids))
	for i, v := range values {
		r := script.Reply{Values: []rueidis.RedisMessage{v}}
		if v.IsArray() {
			r.Values, r.Err = v.ToArray()
		}
		a := answer{code: int(r.Number())}
		switch {
		case a.code == codeHolder:
			a.holder = readHolder(&r, service, ids[i])
		case a.code == codeDone && len(r.Values) > 0:
			a.revision = r.Number()
		}
		if len(r.Values) > 0 {
			a.registered = r.Number()
		}
		if len(r.Values) > 0 {
			a.replaced = r.Number() == 1
		}
		if r.Err == nil && !slices.Contains(codes, a.code) {
			r.Err = fmt.Errorf("code %d is unknown", a.code)
		}
		if r.Err != nil {
			return nil, fmt.Errorf("service %s: answer of redis: %w", service, r.Err)
		}
		out[i] = a
	}
	return out, nil
}

// readHolder reads what lib/holder.lua returns, except the last two values.
func readHolder(r *script.Reply, service, id string) *HolderError {
	h := &HolderError{Service: service, ID: id, Epoch: r.Text(), Host: r.Text()}
	h.Port, _ = strconv.Atoi(r.Text()) // 0 if the record is broken
	h.Silent = time.Duration(r.Number()) * time.Millisecond
	h.Interval = time.Duration(r.Number()) * time.Millisecond
	return h
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// random64 returns a stamp for a change. Two histories that part at one revision have different
// stamps.
func random64() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// newEpoch returns a name for one life of a provider.
func newEpoch() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
