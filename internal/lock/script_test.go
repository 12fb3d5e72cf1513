package lock

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, files)
}
