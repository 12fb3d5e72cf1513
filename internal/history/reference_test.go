package history

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/reference"
)

// TestReference writes docs/reference/history.md.
func TestReference(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{"`" + s.name + "`", s.help})
	}
	reference.Check(t, "history.md", "History", "[scheduler.md](../scheduler.md#history) says where these series come from.\n\n"+
		reference.RowsTable([]string{"series", "meaning"}, rows))
}
