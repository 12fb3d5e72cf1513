package registry

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestAccess: what roles may do, they do.
func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}
