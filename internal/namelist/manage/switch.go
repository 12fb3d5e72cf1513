package manage

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

// SwitchRequest is a switch, or a rollback: the same step, to an older version.
type SwitchRequest struct {
	Number int64
	// Serving is the version that the operator saw, or namelist.AnyVersion.
	Serving int64
	// Now is true to wait for no client.
	Now bool
	// Quota is nil if the ids need not be counted.
	Quota *namelist.Quota
	By    namelist.By
}

// Switch begins a switch. The switch is over when the list no longer has an operation.
func (m *Manager) Switch(ctx context.Context, list string, r SwitchRequest) (namelist.Operation, error) {
	return m.switching(ctx, list, r, func(error) {})
}

// switching works like Switch. It calls failed if a switch that has begun does not end well.
func (m *Manager) switching(
	ctx context.Context, list string, r SwitchRequest, failed func(error),
) (namelist.Operation, error) {
	v, err := m.control.Version(ctx, list, r.Number)
	if err != nil {
		return namelist.Operation{}, err
	}
	op, err := m.control.Begin(
		ctx, list,
		namelist.Begin{
			Kind: namelist.OpSwitch, Number: r.Number, Holder: m.cfg.Self, Serving: r.Serving, Quota: r.Quota, By: r.By,
		},
	)
	if err != nil {
		return op, err
	}
	err = m.work(list, op, func(ctx context.Context) (err error) {
		defer func() {
			if err != nil {
				failed(err)
			}
		}()
		if err := m.whole(ctx, list, &v); err != nil {
			return err
		}
		wait := prepareTimeout
		if r.Now {
			wait = 0
		}
		return m.move(ctx, list, op, wait, r.Serving)
	})
	if errors.Is(err, errStopped) { // it did not begin
		m.giveUp(list, op, err)
	}
	return op, err
}

// whole checks whether the segments of a version are there, and marks a damaged version.
func (m *Manager) whole(ctx context.Context, list string, v *namelist.Version) error {
	server, err := m.cfg.Server(ctx, v.Server)
	if err != nil {
		return err
	}
	err = server.Sealed(ctx, list, v)
	var damage *version.DamageError
	if errors.As(err, &damage) {
		err = errors.Join(err, m.damage(ctx, list, v.Number, damage))
	}
	return err
}

// damage marks a version that is not as it was built. If the version has gone meanwhile, that is no
// damage: its keys were removed.
func (m *Manager) damage(ctx context.Context, list string, number int64, damage *version.DamageError) error {
	if _, err := m.control.Damage(ctx, list, number, damage.Why); err != nil {
		return err
	}
	m.metrics.damages.Inc()
	m.log.Error(
		"lists.version_damaged", zap.String("list", list), zap.Int64("version", number),
		zap.String("damage", damage.Why),
	)
	return nil
}

// move names the next version, waits for clients to load it, but at most for wait, and moves the
// pointer.
func (m *Manager) move(
	ctx context.Context, list string, op namelist.Operation, wait time.Duration, serving int64,
) error {
	h, err := m.control.Prepare(ctx, list, op)
	if err != nil {
		return err
	}
	if wait > 0 {
		if err := m.awaitPrepared(ctx, &h, wait); err != nil {
			return err
		}
	}
	_, err = m.control.Switch(ctx, list, op, serving)
	return err
}

const (
	// lookEvery is how often the clients that lack the next version are counted; clients report after
	// each load. A pause is also countRest times as long as the count before it took, which grows
	// with the clients.
	lookEvery = 100 * time.Millisecond
	countRest = 20
	// relayedPatience, and the time to load a version at loadRate bytes a second, are how long a
	// switch waits for clients that report through replicas. Anyone with a token can invent such
	// clients. The answers of a client that was not waited for are right: it asks Redis.
	relayedPatience = 3 * time.Second
	loadRate        = 5 << 20
)

// patience returns how long a switch to a version waits for clients that report through replicas.
func patience(h *namelist.Head) time.Duration {
	bytes := int64(0)
	if h.Next != nil {
		bytes = h.Next.FilterBytes
		if h.Whole {
			bytes += h.Next.Bytes
		}
	}
	return relayedPatience + time.Duration(bytes/loadRate)*time.Second
}

// prepared reports whether the pointer may move, that long after the version was announced.
func prepared(n namelist.Lacking, waited, patience time.Duration) bool {
	return n.Direct == 0 && (n.Relayed == 0 || waited >= patience)
}

func (m *Manager) awaitPrepared(ctx context.Context, h *namelist.Head, wait time.Duration) error {
	end := time.NewTimer(wait)
	defer end.Stop()
	for begun := time.Now(); ; {
		look := time.Now()
		n, err := m.control.Lacking(ctx, h)
		if err == nil && prepared(n, look.Sub(begun), patience(h)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-time.After(max(lookEvery, countRest*time.Since(look))):
		}
	}
}
