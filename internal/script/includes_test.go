package script_test

import (
	"os"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

// TestScripts: the scripts of this package's own tests keep the rules.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, os.DirFS("testdata"))
}
