package namelist

import (
	"context"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
)

// Leases of operations. If one lapses, another replica takes the operation or cancels it.
const (
	Lease        = 30 * time.Second
	SessionLease = 10 * time.Minute // of an edit session
)

func (k OpKind) lease() time.Duration {
	if k == OpEdit {
		return SessionLease
	}
	return Lease
}

// Lapsed reports whether the lease of the list's operation was over when the head was read, by
// Redis' clock. A lease that ends later than any lease can also counts as over: the clock was put
// back.
func (h *Head) Lapsed() bool {
	left := h.Op.Lease.Sub(h.At)
	return h.Op.ID != "" && (left <= 0 || left > h.Op.Kind.lease()+time.Second)
}

func milliseconds(d time.Duration) string { return number(d.Milliseconds()) }

// Begin describes an operation to begin.
type Begin struct {
	Kind OpKind
	// Number is the target of a switch; other operations get a number.
	Number int64
	// Holder is the replica that carries the operation out.
	Holder string
	// Serving is the version that the operator saw, or AnyVersion.
	Serving int64
	// Quota is nil if the ids need not be counted.
	Quota *Quota
	By
}

// idle returns the fields of a list without an operation.
func idle(state State) []string {
	return []string{
		"state", string(state), "next", "0", "op", "", "op_kind", "", "op_number", "0", "op_base", "0", "op_edited", "0",
		"former", "", "holder", "", "why", "", "since", "0", "lease", "0", "op_server", "", "op_bytes", "0", "op_segments",
		"0", "op_blocks", "0",
	}
}

// Begin begins an operation, and cancels a compaction. The caller must renew the operation's lease.
func (c *Control) Begin(ctx context.Context, list string, b Begin) (Operation, error) {
	var found freeslot.FieldErrors
	b.validate(&found)
	found.Add(freeslot.ValidateName("holder", b.Holder))
	if len(found) > 0 {
		return Operation{}, found.Err()
	}
	id, what := random128(), string(b.Kind)
	h, err := c.step(ctx, what, list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case !slices.Contains(ruleOf(h.State).begins, b.Kind), b.Kind == OpCompact && h.Op.ID != "":
			return nil, h.conflict(what)
		}
		if err := h.saw(b.Serving); err != nil {
			return nil, err
		}
		ch := &change{fields: idle(entering(b.Kind, h.State)), quota: b.Quota}
		build := int64(0)
		switch b.Kind {
		case OpEdit:
		case OpSwitch:
			build = b.Number
			if err := c.watch(ctx, h, b.Number, ch); err != nil {
				return nil, err
			}
		default:
			build = h.Number + 1
			ch.fields = append(ch.fields, "number", number(build))
		}
		ch.fields = append(ch.fields, "op", id, "op_kind", string(b.Kind), "op_number", number(build), "op_base",
			number(h.Revision),
			"op_edited", number(h.Edited), "former", string(h.State), "holder", b.Holder, "why", b.why(), "@since", "0",
			"@lease", milliseconds(b.Kind.lease()))
		return ch, nil
	})
	return h.Op, err
}

// held makes a step for the holder of an operation. It is refused once another replica has taken
// the operation, or the operation is over.
func (c *Control) held(
	ctx context.Context, what, list string, op Operation, decide func(h *Head) (*change, error),
) (Head, error) {
	return c.step(ctx, what, list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case h.Op.ID != op.ID || op.ID == "" || h.Op.Holder != op.Holder:
			return nil, h.conflict(what + " of operation " + op.ID + ", which is over or has another holder,")
		}
		return decide(h)
	})
}

// Renew renews the lease of an operation. After a conflict the caller must stop.
func (c *Control) Renew(ctx context.Context, list string, op Operation) (Operation, error) {
	h, err := c.held(ctx, "the next step", list, op, func(h *Head) (*change, error) {
		return &change{mode: "quiet", fields: []string{"@lease", milliseconds(h.Op.Kind.lease())}}, nil
	})
	return h.Op, err
}

// Reserve records what the build of an operation will write, before it writes. The reservation
// holds until the operation ends or its version is put.
func (c *Control) Reserve(ctx context.Context, list string, op Operation, r Reservation) error {
	_, err := c.held(ctx, "the reservation", list, op, func(*Head) (*change, error) {
		return &change{mode: "quiet", fields: []string{
			"op_server", r.Server, "op_bytes", number(r.Bytes), "op_segments", number(int64(r.Segments)), "op_blocks",
			number(int64(r.Blocks)),
		}}, nil
	})
	return err
}

// Take makes holder the holder of an operation whose lease has lapsed.
func (c *Control) Take(ctx context.Context, list, id, holder string) (Operation, error) {
	if err := freeslot.ValidateName("holder", holder); err != nil {
		return Operation{}, err
	}
	h, err := c.step(ctx, "take-over", list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case h.Op.ID != id || !h.Lapsed():
			return nil, h.conflict("take-over of operation " + id)
		}
		return &change{fields: []string{"holder", holder, "@lease", milliseconds(Lease)}}, nil
	})
	return h.Op, err
}

// Cancel ends an operation without result, no matter who holds it: the list is as before. The
// caller must remove what was built.
func (c *Control) Cancel(ctx context.Context, list, id string) (Head, error) {
	return c.step(ctx, "cancel", list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case h.Op.ID != id || id == "":
			return nil, h.conflict("cancel of operation " + id)
		}
		return &change{fields: idle(h.Op.Former)}, nil
	})
}

// Done ends an import, expansion, move or compaction: its version is ready, and the list returns to
// its former state. The version's base must be set.
func (c *Control) Done(ctx context.Context, list string, op Operation, v Version) (Head, error) {
	return c.held(ctx, "the end", list, op, func(h *Head) (*change, error) {
		ch, err := h.put(v)
		if err == nil {
			ch.fields = idle(h.Op.Former)
		}
		if h.Op.Kind == OpMove {
			ch.fields = append(ch.fields, "server", v.Server)
		}
		return ch, err
	})
}

// PutVersion works like Done, for a compaction that goes on to switch: the operation stays.
func (c *Control) PutVersion(ctx context.Context, list string, op Operation, v Version) (Head, error) {
	return c.held(ctx, "the version", list, op, func(h *Head) (*change, error) {
		ch, err := h.put(v)
		if err == nil {
			ch.mode, ch.fields = "quiet", []string{"op_bytes", "0"} // the version counts from now on
		}
		return ch, err
	})
}

// Prepare names the version of a switch or a compaction as the next one, so that clients load it.
func (c *Control) Prepare(ctx context.Context, list string, op Operation) (Head, error) {
	return c.held(ctx, "prepare", list, op, func(h *Head) (*change, error) {
		ch := &change{fields: []string{"next", number(h.Op.Number)}}
		if !h.Op.Kind.switches() {
			return nil, h.conflict("prepare")
		}
		return ch, c.watch(ctx, h, h.Op.Number, ch)
	})
}

// Switch moves the pointer to the version of a switch or a compaction, and ends the operation.
// serving is the version that the operator saw, or AnyVersion.
func (c *Control) Switch(ctx context.Context, list string, op Operation, serving int64) (Head, error) {
	return c.held(ctx, "switch", list, op, func(h *Head) (*change, error) {
		if !h.Op.Kind.switches() {
			return nil, h.conflict("switch")
		}
		if err := h.saw(serving); err != nil {
			return nil, err
		}
		ch := &change{fields: append(idle(Active), "serving", number(h.Op.Number))}
		if err := c.watch(ctx, h, h.Op.Number, ch); err != nil {
			return nil, err
		}
		if h.Serving != nil {
			if err := c.stopped(ctx, list, h.Serving.Number, h.At, ch); err != nil {
				return nil, err
			}
		}
		return ch, c.stopped(ctx, list, h.Op.Number, time.Time{}, ch)
	})
}

func (k OpKind) switches() bool { return k == OpSwitch || k == OpCompact }
