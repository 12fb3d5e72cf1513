package worker

import (
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
)

func TestEntriesOf(t *testing.T) {
	t.Parallel()
	for want, ids := range map[int][]string{0: nil, 1: {"1-0", "1-0", "1-0"}, 2: {"1-0", "1-1", "1-1"}, 3: {"1-0", "1-1", "2-0"}} {
		found := make([]cell.Dispatch, len(ids))
		for i, id := range ids {
			found[i].ID = id
		}
		if got := entriesOf(found); got != want {
			t.Errorf("%q are %d entries, want %d", ids, got, want)
		}
	}
}
