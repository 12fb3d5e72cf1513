package client

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scriptedStore is a store for node-1 behind scripted gateways.
type scriptedStore struct {
	*Store
	beats chan struct{} // has a token when a heartbeat was requested
}

// newStore makes a store for node-1, with the worker's times.
func newStore(t *testing.T, cfg Config, beat func()) *Store {
	t.Helper()
	if cfg.TokenFile == "" {
		cfg.Token = "secret"
	}
	cfg.Node, cfg.Epoch, cfg.Beat = "node-1", "epoch-1", beat
	cfg.HeartbeatInterval, cfg.CallTimeout, cfg.SpecTimeout = 3*time.Second, 2*time.Second, 8*time.Second
	if bad := cfg.Validate(); len(bad) > 0 {
		t.Fatalf("Validate returned %v, expected no mistakes", bad)
	}
	m, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, zap.NewNop(), m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newScriptedStore(t *testing.T, p *gatewaytest.Network, cfg Config) *scriptedStore {
	t.Helper()
	cfg.Dial = p.Dial
	s := &scriptedStore{beats: make(chan struct{}, 1)}
	s.Store = newStore(t, cfg, func() { notify(s.beats) })
	return s
}

func startScriptedStore(t *testing.T, p *gatewaytest.Network, cfg Config) *scriptedStore {
	t.Helper()
	s := newScriptedStore(t, p, cfg)
	s.startUntilEnd(t)
	return s
}

// startUntilEnd starts the store, and stops it at the end of the test.
func (s *scriptedStore) startUntilEnd(t *testing.T) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CallTimeout)
		defer cancel()
		_ = s.Stop(ctx)
	})
}

func (s *scriptedStore) heartbeat(t *testing.T) <-chan error {
	return gatewaytest.Async(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), s.cfg.CallTimeout)
		defer cancel()
		_, err := s.Heartbeat(ctx, cell.Heartbeat{Status: freeslot.StatusOnline})
		return err
	})
}
