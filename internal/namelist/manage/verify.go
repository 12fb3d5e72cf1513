package manage

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	// VerifyTimeout bounds a read of a whole version.
	VerifyTimeout = 5 * time.Minute
	// restingTimeout bounds such a read if it rests meanwhile.
	restingTimeout = time.Hour
	// verifyEvery is how often a serving version is read back.
	verifyEvery = 24 * time.Hour
)

// Verify reads a version back: seals, digest, filter. It marks a damaged version.
func (m *Manager) Verify(ctx context.Context, list string, number int64) (namelist.Version, error) {
	return m.verify(ctx, list, number, func(s *version.Segments) *version.Segments { return s })
}

func (m *Manager) verify(
	ctx context.Context, list string, number int64, paced func(*version.Segments) *version.Segments,
) (namelist.Version, error) {
	v, err := m.control.Version(ctx, list, number)
	if err != nil {
		return v, err
	}
	server, err := m.cfg.Server(ctx, v.Server)
	if err != nil {
		return v, err
	}
	err = paced(server).Verify(ctx, list, &v, func(uint32) {})
	if damage, ok := errors.AsType[*version.DamageError](err); ok {
		v.Damaged = damage.Why
		err = m.damage(ctx, list, number, damage)
	}
	return v, err
}

// verifySoon verifies the serving version if that is due, unless another verification is under way.
func (m *Manager) verifySoon(h *namelist.Head) {
	if h.Serving == nil || h.State == namelist.Deleting || h.Serving.Damaged != "" ||
		!h.VerifyDue(h.Serving, m.verifyEvery) {
		return
	}
	select {
	case m.verifies <- *h:
	default: // the next round asks again
	}
}

// verifyLoop verifies one version after another.
func (m *Manager) verifyLoop() {
	for {
		select {
		case <-m.ctx.Done():
			return
		case h := <-m.verifies:
			if err := m.verifyServing(&h); err != nil && !isAnswer(err) && m.ctx.Err() == nil {
				m.log.Warn("lists.version_unverified", zap.String("list", h.Name),
					zap.Int64("version", h.Serving.Number), zap.Error(err))
			}
		}
	}
}

func (m *Manager) verifyServing(h *namelist.Head) error {
	ctx, cancel := context.WithTimeout(m.ctx, restingTimeout)
	defer cancel()
	mine, err := m.control.BeginVerify(ctx, h.Name, h.Serving.Number, m.verifyEvery)
	if err != nil || !mine {
		return err
	}
	_, err = m.verify(ctx, h.Name, h.Serving.Number, (*version.Segments).Resting)
	return err
}
