package namelist

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// A snapshot that is read can be restored and asked.
func FuzzSnapshot(f *testing.F) {
	head := &lists.Head{Name: "vip", Birth: "1", Form: form.Exact, Serving: &lists.Version{
		Number: 1, Build: firstBuild, Segments: 1, BlockBits: 1, Filter: filter.Fuse, FilterBytes: 100,
	}}
	l := newLoaded(head.Serving)
	var b filter.Builder
	block, err := b.Build(filter.Fuse, []uint64{1, 2, 3})
	if err != nil {
		f.Fatal(err)
	}
	l.put(0, block, 3)
	p := &snapshot{head: head, version: head.Serving, edits: noEdits.with(0, 1, []lists.Change{add("a"), drop("b")}), blocks: l.blocks, keys: l.keys}
	var whole bytes.Buffer
	if err := encodeSnapshot(&whole, "vip", p); err != nil {
		f.Fatal(err)
	}
	if _, err := decodeSnapshot(whole.Bytes(), "vip"); err != nil {
		f.Fatal(err)
	}
	at := len(snapshotMagic) + 4
	length := int(binary.LittleEndian.Uint32(whole.Bytes()[len(snapshotMagic):]))
	f.Add(whole.Bytes()[at:at+length], whole.Bytes()[at+length:whole.Len()-sha256.Size])
	f.Fuzz(func(t *testing.T, text, blocks []byte) {
		data := binary.LittleEndian.AppendUint32([]byte(snapshotMagic), uint32(len(text)))
		data = append(append(data, text...), blocks...)
		sum := sha256.Sum256(data)
		s, err := decodeSnapshot(append(data, sum[:]...), "vip")
		if err != nil {
			return
		}
		v := newView("vip", time.Second)
		all := func(int64) bool { return true }
		v.restore(s, time.Now(), time.Second, all)
		if v.shown.why != ReasonNone {
			t.Fatal("it was not restored")
		}
		c := newCache(MinMaxBytes)
		for _, id := range []string{"a", "b", "", "1"} {
			v.snapshot(time.Now(), time.Second, all).lookup(&Answer{}, c, id)
		}
	})
}
