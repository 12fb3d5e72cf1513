package manage

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
)

// A switch waits for processes with Redis as long as it waits at all, and shortly for clients that
// anyone with a token can invent.
func TestPrepared(t *testing.T) {
	t.Parallel()
	small := &namelist.Head{Next: &namelist.Version{FilterBytes: 1000, Bytes: 1 << 30}}
	large := &namelist.Head{Next: &namelist.Version{FilterBytes: 100 << 20}}
	for _, c := range []struct {
		name   string
		head   *namelist.Head
		lack   namelist.Lacking
		waited time.Duration
		want   bool
	}{
		{"all have it", large, namelist.Lacking{}, 0, true},
		{"1,000 clients through replicas lack it", small, namelist.Lacking{Relayed: 1000}, 2 * time.Second, false},
		{"and go on to lack it", small, namelist.Lacking{Relayed: 1000}, 3 * time.Second, true},
		{"a large filter needs longer", large, namelist.Lacking{Relayed: 1}, 3 * time.Second, false},
		{"but not for ever", large, namelist.Lacking{Relayed: 1}, 23 * time.Second, true},
		{"a process with Redis lacks it", small, namelist.Lacking{Direct: 1}, 29 * time.Second, false},
	} {
		if got := prepared(c.lack, c.waited, patience(c.head)); got != c.want {
			t.Errorf("%s, for %s: the pointer may move: %v; want %v", c.name, c.waited, got, c.want)
		}
	}
}
