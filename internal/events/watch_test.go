package events

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestWatchAgainstTwin: in any order of calls, Take returns what a plain set would hold, and there
// is a token whenever there is something to take.
func TestWatchAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 5
		w := newWatch(limit)
		twin, twinAll := make(map[string]bool), false
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if (twinAll || len(twin) > 0) && len(w.changed) == 0 {
					t.Fatal("something is there and no token")
				}
			},
			"touch": func(t *rapid.T) {
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")
				w.touch(id)
				twin[id] = true
			},
			"flood": func(t *rapid.T) {
				for i := range rapid.IntRange(1, limit+1).Draw(t, "nodes") {
					id := fmt.Sprint("flood-", i)
					w.touch(id)
					twin[id] = true
				}
			},
			"all": func(*rapid.T) { w.touchAll(); twinAll = true },
			"take": func(t *rapid.T) {
				select {
				case <-w.Changed():
				default:
				}
				nodes, all := w.Take()
				if wantAll := twinAll || len(twin) > limit; all != wantAll {
					t.Fatalf("all is %v, want %v", all, wantAll)
				}
				if !all && len(nodes) != len(twin) || all && nodes != nil {
					t.Fatalf("%d nodes, all %v, want %d", len(nodes), all, len(twin))
				}
				for _, id := range nodes {
					if !twin[id] {
						t.Fatalf("%s was not touched", id)
					}
				}
				clear(twin)
				twinAll = false
			},
		})
	})
}

// With any interleaving of writers and the reader, a reader that waits for tokens takes every node
// after its last touch.
func TestWatchConcurrent(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 2000
	w := newWatch(watchLimit)
	var writing sync.WaitGroup
	var near [writers]atomic.Bool // the last touch is under way
	for i := range writers {
		writing.Go(func() {
			for n := range each {
				w.touch(fmt.Sprintf("%d-%d", i, n%100))
				if n == each/2 {
					w.touchAll()
				}
			}
			near[i].Store(true)
			w.touch(fmt.Sprintf("last-%d", i))
		})
	}
	written := make(chan struct{})
	go func() { writing.Wait(); close(written) }()
	seen := make(map[string]bool)
	take := func() {
		nodes, all := w.Take()
		for i := range writers {
			if last := fmt.Sprintf("last-%d", i); all && near[i].Load() || slices.Contains(nodes, last) {
				seen[last] = true
			}
		}
	}
	for done := false; !done; {
		select {
		case <-w.Changed():
			take()
		case <-written:
			done = true
		}
	}
	for len(w.Changed()) > 0 {
		<-w.Changed()
		take()
	}
	if len(seen) != writers {
		t.Errorf("taken %v, of %d writers", seen, writers)
	}
	if nodes, all := w.Take(); all || nodes != nil {
		t.Errorf("left without a token: %v, %v", nodes, all)
	}
}

func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	w := newWatch(watchLimit)
	for i := range watchLimit {
		w.touch(fmt.Sprint("node-", i))
	}
	if nodes, all := w.Take(); len(nodes) != watchLimit || all {
		t.Errorf("%d nodes, all %v", len(nodes), all)
	}
	for i := range watchLimit + 1 {
		w.touch(fmt.Sprint("node-", i))
	}
	if nodes, all := w.Take(); nodes != nil || !all {
		t.Errorf("%d nodes, all %v", len(nodes), all)
	}
}

func TestWatchConnected(t *testing.T) {
	t.Parallel()
	w := newWatch(watchLimit)
	if w.Connected() {
		t.Error("connected to no server")
	}
	a, b := new(connection), new(connection)
	w.connections.Store(&[]*connection{a, b})
	for _, tt := range []struct{ a, b bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		a.connected.Store(tt.a)
		b.connected.Store(tt.b)
		if got := w.Connected(); got != (tt.a && tt.b) {
			t.Errorf("%+v: %v; want got == (tt.a && tt.b)", tt, got)
		}
	}
}
