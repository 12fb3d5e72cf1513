package api_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/api/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*apitest.Server
	config *fakeConfig
}

func setup(t *testing.T, cfg api.Config, adapt ...func(*api.Deps)) *fixture {
	t.Helper()
	config := newFakeConfig()
	adapt = append([]func(*api.Deps){func(d *api.Deps) { d.Config, d.Pools = config, config }}, adapt...)
	return &fixture{apitest.New(t, cfg, adapt...), config}
}

// soon ends a test that waits for what never happens.
func soon[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited 10s for %s", what)
		panic("unreachable")
	}
}
