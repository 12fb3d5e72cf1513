package namelist

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// put returns a change that stores the version of the list's operation.
func (h *Head) put(v Version) (*change, error) {
	if v.Number != h.Op.Number || h.Op.Kind == OpSwitch || h.Op.Kind == OpEdit {
		return &change{}, freeslot.Invalid(
			"number", "is %d, which is not what operation %s (%s) builds", v.Number, h.Op.ID, h.Op.Kind,
		)
	}
	v.Base, v.Edited, v.AtMS = h.Op.Base, h.Op.Edited, h.At.UnixMilli()
	text, err := json.Marshal(v)
	return &change{versions: []string{number(v.Number), string(text)}}, err
}

// Target returns an error that says why a version cannot be switched to, or nil.
func (h *Head) Target(v *Version) error {
	why := ""
	switch {
	case v.Damaged != "":
		why = "it is damaged: " + v.Damaged
	case v.Doubt != "":
		why = "it waits to be accepted: " + v.Doubt + "; accept it first"
	case v.Base < h.Floor:
		why = "the log does not have all edits since it was built"
	default:
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Message: fmt.Sprintf("version %d of list %s cannot serve: %s", v.Number, h.Name, why),
	}
}

// watch checks that a list can switch to a version, and makes the change fail if that version
// changes.
func (c *Control) watch(ctx context.Context, h *Head, n int64, ch *change) error {
	v, text, err := c.version(ctx, h.Name, n)
	if err != nil {
		return err
	}
	ch.watched = append(ch.watched, number(n), text)
	return h.Target(v)
}

// stopped records when a version stopped serving; the zero time means that it serves.
func (c *Control) stopped(ctx context.Context, list string, n int64, at time.Time, ch *change) error {
	v, before, err := c.version(ctx, list, n)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if v.StoppedMS = 0; !at.IsZero() {
		v.StoppedMS = at.UnixMilli()
	}
	after, err := json.Marshal(v)
	ch.watched, ch.versions = append(ch.watched, number(n), before), append(ch.versions, number(n), string(after))
	return err
}

func (c *Control) version(ctx context.Context, list string, n int64) (v *Version, text string, err error) {
	text, err = c.runner.Do(
		ctx, "lists_version", c.runner.B().Hget().Key(c.k.versions(list)).Field(number(n)).Build(),
	).ToString()
	if rueidis.IsRedisNil(err) {
		return nil, "", &freeslot.Error{
			Code: freeslot.CodeNotFound, Message: fmt.Sprintf("list %s has no version %d", list, n),
		}
	}
	if err == nil {
		v, err = decodeVersion(text)
	}
	if err != nil {
		return nil, "", fault("version of", list, err)
	}
	return v, text, nil
}

// Version returns one version of a list. Errors: also not_found.
func (c *Control) Version(ctx context.Context, list string, n int64) (Version, error) {
	v, _, err := c.version(ctx, list, n)
	if err != nil {
		return Version{}, err
	}
	return *v, nil
}

// Versions returns the versions of a list that are ready, newest first.
func (c *Control) Versions(ctx context.Context, list string) ([]Version, error) {
	all, err := c.runner.Do(ctx, "lists_versions", c.runner.B().Hvals().Key(c.k.versions(list)).Build()).AsStrSlice()
	if err != nil {
		return nil, fault("versions of", list, err)
	}
	out := make([]Version, len(all))
	for i, text := range all {
		v, err := decodeVersion(text)
		if err != nil || v == nil {
			return nil, fault("versions of", list, err)
		}
		out[i] = *v
	}
	slices.SortFunc(out, func(a, b Version) int { return cmp.Compare(b.Number, a.Number) })
	return out, nil
}

// Accept removes the doubt about a version. The caller must name its exact number.
func (c *Control) Accept(ctx context.Context, list string, n int64) (Head, error) {
	return c.amend(ctx, "accept", "", list, n, func(h *Head, v *Version) (*Version, error) {
		v.Doubt = ""
		if !ruleOf(h.State).set {
			return nil, h.conflict("accept")
		}
		return v, nil
	})
}

// Damage marks a version in which something was found missing: it is then no target of a switch.
func (c *Control) Damage(ctx context.Context, list string, n int64, what string) (Head, error) {
	var found freeslot.FieldErrors
	if line(&found, "damaged", what); len(found) > 0 {
		return Head{}, found.Err()
	}
	return c.amend(ctx, "mark", "", list, n, func(h *Head, v *Version) (*Version, error) {
		if v.Damaged == "" {
			v.DamagedMS = h.At.UnixMilli()
		}
		v.Damaged = what
		return v, nil
	})
}

// BeginVerify returns true to the one caller that must read a version back, if no one has begun to
// for the time every.
func (c *Control) BeginVerify(ctx context.Context, list string, n int64, every time.Duration) (mine bool, err error) {
	_, err = c.amend(ctx, "verify", "quiet", list, n, func(h *Head, v *Version) (*Version, error) {
		if mine = h.VerifyDue(v, every); mine {
			v.VerifiedMS = h.At.UnixMilli()
		}
		return v, nil
	})
	return mine && err == nil, err
}

// VerifyDue reports whether for the time every a version was neither made nor read back.
func (h *Head) VerifyDue(v *Version, every time.Duration) bool {
	return h.At.UnixMilli()-max(v.AtMS, v.VerifiedMS) >= every.Milliseconds()
}

// DropVersion forgets a version whose segments were removed. The serving version, the next one and
// the operation's stay.
func (c *Control) DropVersion(ctx context.Context, list string, n int64) (Head, error) {
	return c.amend(ctx, "drop", "", list, n, func(h *Head, _ *Version) (*Version, error) {
		if n == h.serving() || n == h.Op.Number || h.Next != nil && n == h.Next.Number {
			return nil, &freeslot.Error{
				Code: freeslot.CodeConflict, Message: fmt.Sprintf("version %d of list %s is in use", n, list),
			}
		}
		return nil, nil //nolint:nilnil // it goes
	})
}

// amend rewrites one version, in any state; nil removes it.
func (c *Control) amend(
	ctx context.Context, what, mode, list string, n int64, decide func(*Head, *Version) (*Version, error),
) (Head, error) {
	return c.step(ctx, what, list, func(h *Head) (*change, error) {
		if !h.exists() {
			return nil, notFound(list)
		}
		v, before, err := c.version(ctx, list, n)
		if err != nil {
			return nil, err
		}
		if v, err = decide(h, v); err != nil {
			return nil, err
		}
		after := []byte(nil)
		if v != nil {
			if after, err = json.Marshal(v); err != nil || string(after) == before {
				return nil, err
			}
		}
		return &change{mode: mode, versions: []string{number(n), string(after)}, watched: []string{number(n), before}}, nil
	})
}
