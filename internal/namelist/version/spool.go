package version

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	// maxPartitionBits bounds the number of partitions to 1,024.
	maxPartitionBits = 10
	// partitionBytes is the intended size of a partition.
	partitionBytes = 4 << 20
	bufferBytes    = 32 << 10
)

// The families of partition files. Of equal ids, the one in the later family wins.
const (
	familyBase   = "base"
	familyEdits  = "edits"
	familyLines  = "lines"
	familySorted = "sorted"
)

// spool writes the partition files of one family. It keeps no file open. It is not safe for
// concurrent use.
type spool struct {
	dir, family string
	bits        uint8
	buffers     [][]byte
}

func newSpool(dir, family string, bits uint8) *spool {
	return &spool{dir: dir, family: family, bits: bits, buffers: make([][]byte, 1<<bits)}
}

// partitionBits returns the number of bits for a build that will read that many bytes.
func partitionBits(bytes int64) uint8 {
	return uint8(min(bits.Len64(uint64(max(bytes, 0)/partitionBytes)), maxPartitionBits))
}

func partitionFile(dir, family string, partition int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%04d", family, partition))
}

func (s *spool) add(hash uint64, r record) error {
	p := form.Block(hash, s.bits)
	s.buffers[p] = r.append(s.buffers[p])
	if len(s.buffers[p]) < bufferBytes {
		return nil
	}
	return s.flush(int(p))
}

func (s *spool) flush(partition int) error {
	if len(s.buffers[partition]) == 0 {
		return nil
	}
	f, err := os.OpenFile(partitionFile(s.dir, s.family, partition), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(s.buffers[partition])
	s.buffers[partition] = s.buffers[partition][:0]
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// finish writes what is still in memory.
func (s *spool) finish() error {
	for p := range s.buffers {
		if err := s.flush(p); err != nil {
			return err
		}
		s.buffers[p] = nil
	}
	return nil
}

// clear removes the files of a family.
func (s *spool) clear() error {
	files, err := filepath.Glob(filepath.Join(s.dir, s.family+"-*"))
	for _, file := range files {
		if err == nil {
			err = os.Remove(file)
		}
	}
	return err
}

// removePartition removes the files from which a sorted partition was made.
func removePartition(dir string, partition int) error {
	for _, family := range []string{familyBase, familyEdits, familyLines} {
		if err := os.Remove(partitionFile(dir, family, partition)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
