package api

import (
	"fmt"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRefusalIsNamed: what an operator asks for is unavailable while Redis refuses writes, and the
// error names the reason.
func TestRefusalIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := server.Client(t)
	redistest.FailSaves(t, server)
	err := client.Do(t.Context(), client.B().Set().Key("key").Value("v").Build()).Error()
	got := coded(fmt.Errorf("drain a node: %w", err))
	want := "Redis refuses it: MISCONF (it cannot save its data; its own log has the cause)"
	if got.Code != freeslot.CodeUnavailable || got.Message != want || got.RetryAfter <= 0 {
		t.Errorf("got %+v, expected unavailable with %q", got, want)
	}
}
