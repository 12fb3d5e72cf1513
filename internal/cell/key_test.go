package cell

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTooManyCells(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Layouts("p", MaxCells+1, true)
}

func TestJobCell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(0, MaxCells-1).Draw(t, "cell")
		id := NewJobID(want)
		if got, ok := JobCell(id); !ok || got != want {
			t.Errorf("%s: %d, %v; want ok, got == %v", id, got, ok, want)
		}
	})
	ulid := NewJobID(0)[2:]
	for _, id := range []string{"", "-", ulid, "64-" + ulid, "256-" + ulid, "00-" + ulid, "01-" + ulid, "+1-" + ulid, "-1-" + ulid, "1 -" + ulid, "1-" + ulid + "x", "1-" + ulid[1:]} {
		if got, ok := JobCell(id); ok {
			t.Errorf("%q is taken for an id of cell %d, want it refused", id, got)
		}
	}
}

// FuzzJobCell: what is taken for a job id has one form.
func FuzzJobCell(f *testing.F) {
	f.Add(NewJobID(0))
	f.Add(NewJobID(63))
	f.Add("064-01JD5Y8G6W9V0M5T2C3Q4R7X8Z")
	f.Fuzz(func(t *testing.T, id string) {
		if i, ok := JobCell(id); ok && (i < 0 || i >= MaxCells || !strings.HasPrefix(id, fmt.Sprintf("%d-", i))) {
			t.Errorf("%q is of cell %d", id, i)
		}
	})
}
