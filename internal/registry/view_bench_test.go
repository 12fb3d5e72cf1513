package registry

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// bigView has n instances as a load brings them.
func bigView(n int) *view {
	v := newView("s", journeyConfig, 0)
	v.looked(v.ask(), &looked{}, 0)
	p, _ := v.want(0)
	entries := make([]entry, 0, n)
	for _, id := range ids(n) {
		entries = append(entries, entry{ID: id, Revision: 1, Fields: bigFields(1)})
	}
	h := head{Revision: 1, Birth: "b", Stamp: "b"}
	v.loadPage(p.number, &page{head: h, entries: entries, cursor: "0"}, 0)
	p, _ = v.want(0)
	v.changesPage(p.number, &page{head: h}, 0)
	return v
}

func bigFields(i int) fieldList {
	text := func(s string, a ...any) string { return fmt.Sprintf(s, a...) } // no two share memory, as in answers of Redis
	return fieldList{
		"host", text("10.%d.0.1", i), "port", text("%d", 8080), "protocol", text("%s", "HTTP"), "healthy", "true", "weight", "1", "enabled", "true",
		"draining", "false", "interval", "10000", "kind", "ephemeral", "epoch", text("%032d", i), "content", text("%016d", i), "registered", "1700000000000",
		text("metadata_%s", "zone"), text("eu-%d", i), text("metadata_%s", "version"), text("1.2.%d", i),
	}
}

// TestViewMemory: 100,000 instances are less than 150 MB in a consumer.
func TestViewMemory(t *testing.T) {
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	v := bigView(100_000)
	l, _ := v.build()
	after := memory()
	if l.State != StateLive || len(l.Instances) != 100_000 {
		t.Fatalf("%d instances, %s", len(l.Instances), l.State)
	}
	used := (int64(after) - int64(before)) >> 20
	t.Logf("%d MB", used)
	if used > 100 { // the garbage collector may need some more
		t.Errorf("%d MB are in use", used)
	}
	runtime.KeepAlive(v)
}

// BenchmarkView is a change of ten of many instances, and the list after it.
func BenchmarkView(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			v := bigView(n)
			v.build()
			all := ids(n)
			revision := int64(1)
			b.ReportAllocs()
			for b.Loop() {
				for range 10 {
					revision++
					id := all[int(revision*7919)%n]
					v.event(&change{Revision: revision, Birth: "b", Stamp: "s", Entries: []entry{{ID: id, Revision: revision, Fields: bigFields(2)}}}, time.Second)
				}
				v.build()
			}
		})
	}
}
