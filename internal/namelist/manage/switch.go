package manage

import (
	"context"
	"errors"
	"slices"
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
	By  namelist.By
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
		namelist.Begin{Kind: namelist.OpSwitch, Number: r.Number, Holder: m.cfg.Self, Serving: r.Serving, By: r.By},
	)
	if err != nil {
		return op, err
	}
	return op, m.work(list, op, func(ctx context.Context) (err error) {
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
		return m.move(ctx, list, op, r.Number, wait, r.Serving)
	})
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
		"version of a list is damaged", zap.String("list", list), zap.Int64("version", number),
		zap.String("damage", damage.Why),
	)
	return nil
}

// move names the next version, waits until all live clients have it, but at most for wait, and
// moves the pointer.
func (m *Manager) move(
	ctx context.Context, list string, op namelist.Operation, number int64, wait time.Duration, serving int64,
) error {
	if _, err := m.control.Prepare(ctx, list, op); err != nil {
		return err
	}
	if wait > 0 {
		if err := m.awaitPrepared(ctx, list, number, wait); err != nil {
			return err
		}
	}
	_, err := m.control.Switch(ctx, list, op, serving)
	return err
}

// clientsEvery is how often the clients' reports are read; clients report after each load.
const clientsEvery = 100 * time.Millisecond

func (m *Manager) awaitPrepared(ctx context.Context, list string, number int64, wait time.Duration) error {
	ticker := time.NewTicker(clientsEvery)
	defer ticker.Stop()
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		live, _, err := m.control.Clients(ctx, list)
		if err == nil && !slices.ContainsFunc(
			live, func(c namelist.Client) bool { return c.Serves != number && !slices.Contains(c.Loaded, number) },
		) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-ticker.C:
		}
	}
}
