package api_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon receives from ch.
func soon[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	return waittest.Receive(t, what, ch)
}
