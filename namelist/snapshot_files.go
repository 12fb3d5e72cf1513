package namelist

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
)

const (
	// saveEvery is the least time between two writes of one list.
	saveEvery = 10 * time.Second
	// snapshotMagic begins a file; its last part is the version.
	snapshotMagic = "freeslot-namelist-1\n"
	// snapshotLimit bounds the size of a file that is read.
	snapshotLimit = 1 << 30
)

// snapshots keeps what is loaded in a folder, a file for each list, so that a process can start
// while Redis is away.
type snapshots struct {
	dir, prefix string
	log         *zap.Logger

	mu      sync.Mutex
	pending map[string]*snapshot // guarded by mu; by list, not written yet
	written map[string]*snapshot // only loop uses it
}

func newSnapshots(dir, prefix string, log *zap.Logger) *snapshots {
	return &snapshots{
		dir: dir, prefix: prefix, log: log, pending: make(map[string]*snapshot), written: make(map[string]*snapshot),
	}
}

// changed takes a new snapshot.
func (s *snapshots) changed(list string, p *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[list] = p
}

// loop writes what has changed until ctx ends, and then once more.
func (s *snapshots) loop(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	failed := false
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		s.mu.Lock()
		pending := s.pending
		s.pending = make(map[string]*snapshot)
		s.mu.Unlock()
		for list, p := range pending {
			if was := s.written[list]; was != nil && was.build == p.build && was.revision == p.revision &&
				was.status.Loaded == p.status.Loaded {
				continue
			}
			err := s.write(list, p)
			if err != nil && !failed { // the next ones would fail alike
				s.log.Warn("namelist.snapshot_not_written", zap.String("list", list), zap.Error(err))
			}
			if failed = err != nil; !failed {
				s.written[list] = p
			}
		}
	}
}

// file returns the name of a list's file. It is made of a hash of prefix and name, since names may
// differ in ways that a file system ignores.
func (s *snapshots) file(list string) string {
	sum := sha256.Sum256([]byte(s.prefix + "\x00" + list))
	return filepath.Join(s.dir, "namelist-"+hex.EncodeToString(sum[:16])+".snapshot")
}

// write replaces a list's file in one step.
func (s *snapshots) write(list string, p *snapshot) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, ".namelist-*") // 0600
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<16)
	err = encodeSnapshot(buffered, list, p)
	if err = errors.Join(err, buffered.Flush(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.file(list))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// read returns the content of a list's file. A file that cannot be used is logged.
func (s *snapshots) read(list string) (saved *saved, ok bool) {
	name := s.file(list)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err == nil && info.Size() > snapshotLimit {
		err = fmt.Errorf("it has %d bytes, expected at most %d", info.Size(), snapshotLimit)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if err == nil {
		saved, err = decodeSnapshot(data, list)
	}
	if err != nil {
		s.log.Warn("namelist.snapshot_ignored", zap.String("file", name), zap.String("list", list), zap.Error(err))
		return nil, false
	}
	return saved, true
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
