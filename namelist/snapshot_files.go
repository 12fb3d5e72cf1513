package namelist

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
)

const (
	// saveEvery is the least time between two writes of one list.
	saveEvery = 10 * time.Second
	// snapshotMagic begins a file; its last part is the version.
	snapshotMagic = "freeslot-namelist-1\n"
)

// newSnapshots returns the folder in which a client keeps its loaded lists.
func newSnapshots(dir, prefix string, log *zap.Logger) *follow.Disk[*snapshot] {
	return &follow.Disk[*snapshot]{
		Dir: dir, Prefix: prefix, Feature: "namelist", Noun: "list", Every: saveEvery, Log: log, Encode: encodeSnapshot,
		Same: func(a, b *snapshot) bool {
			return a.build == b.build && a.revision == b.revision && a.status.Loaded == b.status.Loaded
		},
	}
}

// saved is the JSON of a file. A file has the magic, the length of the JSON in 4 bytes of little
// endian, the JSON, the blocks in their wire form, and the SHA-256 of everything before.
type saved struct {
	List     string      `json:"list"`
	Head     *lists.Head `json:"head"`
	Revision int64       `json:"revision"`
	Edits    []savedEdit `json:"edits"`
	// AsOf is as in answers. AheadMS is how far Redis' clock was ahead of this machine's.
	AsOf    time.Time    `json:"as_of"`
	AheadMS int64        `json:"ahead_ms"`
	Blocks  []savedBlock `json:"blocks"`
	// Whole has the ids of a version that is held whole, with their expiries; absent for other
	// versions.
	Whole map[string]int64 `json:"whole,omitzero"`

	blocks []*filter.Block // of Blocks
}

type savedEdit struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
	Expires  int64  `json:"expires,omitzero"` // as in change
}

type savedBlock struct {
	Index uint32 `json:"index"`
	Keys  uint32 `json:"keys"`
	Bytes int    `json:"bytes"`
}

func encodeSnapshot(to io.Writer, list string, p *snapshot) error {
	s := saved{
		List: list, Head: p.head, Revision: p.revision, AsOf: p.asOf, AheadMS: p.clock.redisMS - p.clock.at.UnixMilli(),
		Whole: p.whole,
	}
	for id, c := range p.edits.all() {
		s.Edits = append(s.Edits, savedEdit{id, c.revision, c.expires})
	}
	wire := func(i int) []byte {
		return p.blocks[i].Append(nil, p.version.Filter, p.version.Build, uint32(i), int(p.keys[i]))
	}
	for i, b := range p.blocks {
		if b != nil {
			s.Blocks = append(s.Blocks, savedBlock{uint32(i), p.keys[i], len(wire(i))})
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	sum := sha256.New()
	to = io.MultiWriter(to, sum)
	head := binary.LittleEndian.AppendUint32([]byte(snapshotMagic), uint32(len(text)))
	_, err = to.Write(append(head, text...))
	for _, b := range s.Blocks {
		if err == nil {
			_, err = to.Write(wire(int(b.Index)))
		}
	}
	if err == nil {
		_, err = to.Write(sum.Sum(nil))
	}
	return err
}

func decodeSnapshot(data []byte, list string) (*saved, error) {
	const head = len(snapshotMagic) + 4
	end := len(data) - sha256.Size
	if end < head || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return nil, errors.New("it is not a snapshot of this version")
	}
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil, errors.New("it is damaged")
	}
	rest := data[head:end]
	length := int64(binary.LittleEndian.Uint32(data[len(snapshotMagic):]))
	if length > int64(len(rest)) {
		return nil, errors.New("it is shorter than it says")
	}
	var s saved
	if err := json.Unmarshal(rest[:length], &s); err != nil {
		return nil, err
	}
	rest = rest[length:]
	switch {
	case s.List != list:
		return nil, fmt.Errorf("it is of list %q", s.List)
	case s.Head == nil || s.Head.Birth == "" || s.Head.Serving == nil || !known(s.Head):
		return nil, errors.New("it has no version in a form that this release knows")
	}
	for _, b := range s.Blocks {
		if b.Bytes < 0 || b.Bytes > len(rest) || b.Index >= 1<<s.Head.Serving.BlockBits {
			return nil, errors.New("a block is not where it says")
		}
		block, keys, err := decodeBlock(rest[:b.Bytes], s.Head.Serving.Build, b.Index)
		if err != nil {
			return nil, err
		}
		if keys != b.Keys {
			return nil, errors.New("a block has another number of keys than it says")
		}
		s.blocks, rest = append(s.blocks, block), rest[b.Bytes:]
	}
	return &s, nil
}

// restore takes a list from the disk. Call it only on a view that has not heard from Redis yet.
func (v *view) restore(s *saved, begun time.Time, now time.Duration, fits func(bytes int64) bool) {
	if v.shown.why != ReasonNotLoaded || v.birth != "" {
		return
	}
	l, e := newLoaded(s.Head.Serving), &edits{frozen: make(map[string]change, len(s.Edits))}
	for i, b := range s.Blocks {
		if int(b.Index) < len(l.blocks) && l.blocks[b.Index] == nil && fits(l.bytes+l.need(b.Index)) {
			l.put(b.Index, s.blocks[i], b.Keys)
		}
	}
	if s.Whole != nil && fits(l.need(allIDs)) {
		l.wanted = true
		l.putWhole(s.Whole)
	}
	for _, c := range s.Edits {
		e.frozen[c.ID] = change{c.Revision, c.Expires}
		e.bytes += editBytes + int64(len(c.ID))
	}
	e.index(s.Head.Seed)
	v.birth = s.Head.Birth
	if v.redisMS == 0 {
		v.redisMS, v.redisAt = begun.Add(now).UnixMilli()+s.AheadMS, now
	}
	v.sure = min(begun.Add(now).Round(0).Sub(s.AsOf)*-1+now, now-staleAfter-time.Millisecond)
	v.show(shown{head: s.Head, version: l, revision: s.Revision, edits: e})
}
