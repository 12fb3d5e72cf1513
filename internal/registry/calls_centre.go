package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

// Defaults of cleanup, for services whose record sets none.
const (
	DefaultLimit        = 2 * time.Minute
	DefaultCleanupEvery = 30 * time.Second
	cleanupItems        = 200
)

// cleaned is the result of one call of cleanup.
type cleaned struct {
	removed int
	// more is true if further instances are due.
	more bool
	// guard says why nothing is removed and until when, or is empty.
	guard string
	// every is the time until the next call.
	every time.Duration
}

// cleanup runs cleanup.lua.
func (c *conn) cleanup(ctx context.Context, service string) (out cleaned, err error) {
	runner, k := c.of(service)
	args := []string{
		service, random64(), k.change(service), k.instance(service, ""),
		milliseconds(DefaultLimit), milliseconds(DefaultCleanupEvery), strconv.Itoa(cleanupItems),
	}
	values, err := runner.Call(ctx, scripts["cleanup"], k.changing(service), args).ToArray()
	if err != nil {
		return out, fmt.Errorf("clean up service %s: %w", service, c.explain(err, script.RoleRegistry))
	}
	r := script.Reply{Values: values}
	out = cleaned{
		removed: int(r.Number()), more: r.Number() == 1, guard: guardText(r.Text()),
		every: time.Duration(r.Number()) * time.Millisecond,
	}
	if r.Err != nil {
		return cleaned{}, fmt.Errorf("clean up service %s: answer of redis: %w", service, r.Err)
	}
	return out, nil
}

// cleanupAll runs cleanup until nothing is due.
func (c *conn) cleanupAll(ctx context.Context, service string) (out cleaned, err error) {
	for removed := 0; ; {
		out, err = c.cleanup(ctx, service)
		removed += out.removed
		out.removed = removed
		if err != nil || !out.more {
			return out, err
		}
	}
}

// setting returns the keys of the scripts that set something of one instance.
func (k keys) setting(service, id string) []string {
	return []string{k.record(service), k.changes(service), k.overrides(service), k.instance(service, id)}
}

// verdict runs verdict.lua. why is empty for an instance that passes its checks. Answers: codeDone,
// codeSame, codeHolder for another epoch, codeGone.
func (c *conn) verdict(ctx context.Context, service, id, epoch string, passing bool, why string) (code int, err error) {
	runner, k := c.of(service)
	verdict := "failing"
	if passing {
		verdict, why = "passing", ""
	}
	args := []string{service, random64(), k.change(service), id, epoch, verdict, why}
	n, err := runner.Call(ctx, scripts["verdict"], k.setting(service, id), args).AsInt64()
	switch {
	case err != nil:
		return 0, fmt.Errorf("verdict for instance %s of %s: %w", id, service, err)
	case n < codeDone || n > codeGone:
		return 0, fmt.Errorf("verdict for instance %s of %s: code %d of redis is unknown", id, service, n)
	}
	return int(n), nil
}

// override runs override.lua. nil takes the override back. Redis sets its times: if lasts is more
// than 0, it ends by itself after lasts. seen is the AtMS of the override that is to be changed, 0
// for none, nil for any. Answers: codeDone with the revision, codeGone, codeFull, codeOther.
func (c *conn) override(
	ctx context.Context, service, id string, o *Override, lasts time.Duration, seen *int64,
) (a answer, err error) {
	runner, k := c.of(service)
	text, saw := "", ""
	if seen != nil {
		saw = strconv.FormatInt(*seen, 10)
	}
	if o != nil {
		set := *o
		set.AtMS, set.UntilMS, set.GoneMS = 0, 0, 0
		raw, err := json.Marshal(set)
		if err != nil {
			return a, fmt.Errorf("override for instance %s of %s: %w", id, service, err)
		}
		text = string(raw)
	}
	args := []string{service, random64(), k.change(service), id, text, milliseconds(lasts), saw}
	values, err := runner.Call(ctx, scripts["override"], k.setting(service, id), args).ToArray()
	r := script.Reply{Values: values, Err: err}
	a.code = int(r.Number())
	if a.code == codeDone {
		a.revision = r.Number()
	}
	if r.Err != nil {
		return answer{}, fmt.Errorf("override for instance %s of %s: %w", id, service, r.Err)
	}
	switch a.code {
	case codeDone, codeGone, codeFull, codeOther:
		return a, nil
	default:
		return answer{}, fmt.Errorf("override for instance %s of %s: code %d of redis is unknown", id, service, a.code)
	}
}
