package lock

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestAdminAccess: what a replica may do, it does. That a holder may do enough is shown by all
// other tests.
func TestAdminAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, AdminAccess)
}
