package build

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// sorted says what is in a sorted partition.
type sorted struct {
	Done bool `json:"done"`
	// Count is how many entries it has. Of them Long have an id that is longer than
	// form.CompactBytes. Bytes are what Redis' compact encoding needs for all.
	Count int64 `json:"count"`
	Long  int64 `json:"long"`
	Bytes int64 `json:"bytes"`
	// Duplicates are lines whose id came again in a later line. Expired are entries that were
	// dropped for it.
	Duplicates int64 `json:"duplicates"`
	Expired    int64 `json:"expired"`
}

// place is where an entry of a partition is: at is its index, and of equal ids the highest holds.
type place struct {
	hash uint64
	at   uint32
}

// entry is a record of a partition while it is sorted.
type entry struct {
	record

	line bool // of the upload
}

// sorter sorts partitions, and keeps its memory between them.
type sorter struct {
	dir        string
	bits       uint8 // that cut the partitions
	seed       uint64
	dropBefore int64 // ms; entries that expired before are dropped; 0 drops none
	entries    []entry
	places     []place // of the entries, by hash after unique
	spread     []place
	out        []byte
	duplicates int64
}

// squeezeAt is how many entries of a partition bring an early de-duplication: a file may have one
// id millions of times.
const squeezeAt = 1 << 19

// sort makes the sorted file of a partition from the files of the other families. Repeating it
// makes the same file.
func (s *sorter) sort(partition int) (sorted, error) {
	clear(s.entries)
	s.entries, s.places, s.duplicates = s.entries[:0], s.places[:0], 0
	limit := squeezeAt
	for _, family := range []string{familyBase, familyEdits, familyLines} {
		err := readRecords(partitionFile(s.dir, family, partition), func(r record) error {
			s.places = append(s.places, place{hash: form.Sum(s.seed, r.id), at: uint32(len(s.entries))})
			s.entries = append(s.entries, entry{record: r, line: family == familyLines})
			if len(s.entries) == limit {
				s.squeeze()
				limit = 2*len(s.entries) + squeezeAt
			}
			return nil
		})
		if err != nil {
			return sorted{}, err
		}
	}
	s.unique()
	done := sorted{Done: true, Duplicates: s.duplicates}
	s.out = s.out[:0]
	for _, p := range s.places {
		e := &s.entries[p.at]
		if e.remove {
			continue
		}
		if e.expires != 0 && e.expires < s.dropBefore {
			done.Expired++
			continue
		}
		done.Count++
		done.Bytes += compactBytes(e.record)
		if len(e.id) > form.CompactBytes {
			done.Long++
		}
		s.out = e.append(s.out)
	}
	return done, os.WriteFile(partitionFile(s.dir, familySorted, partition), s.out, 0o600)
}

// squeeze lets go of all entries that do not hold. The others become the first ones.
func (s *sorter) squeeze() {
	s.unique()
	kept := make([]entry, len(s.places))
	for i := range s.places {
		kept[i] = s.entries[s.places[i].at]
		kept[i].id = strings.Clone(kept[i].id) // lets go of the piece of the file
		s.places[i].at = uint32(i)
	}
	s.entries = kept
}

// unique sorts the places by their hashes, and keeps the last of each id.
func (s *sorter) unique() {
	s.sortPlaces()
	kept, group := s.places[:0], 0 // group is where the places with the last hash begin in kept
	for _, p := range s.places {
		if len(kept) > 0 && kept[len(kept)-1].hash != p.hash {
			group = len(kept)
		}
		id := s.entries[p.at].id
		same := slices.IndexFunc(kept[group:], func(k place) bool { return k.hash == p.hash && s.entries[k.at].id == id })
		switch {
		case same < 0:
			kept = append(kept, p)
		case s.entries[p.at].line: // then the later one is a line, too
			s.duplicates++
		}
	}
	s.places = kept
}

// bucketBits cut a partition's hashes into buckets of a few entries.
const bucketBits = 14

// sortPlaces sorts the places by hash, and those of one hash from the last to the first. Hashes are
// spread evenly, so that buckets by their top bits leave little to sort: this takes a tenth of the
// time of slices.SortFunc on all, which was a fifth of an import's.
func (s *sorter) sortPlaces() {
	var begins [1<<bucketBits + 1]uint32
	bucket := func(p place) uint64 { return p.hash << s.bits >> (64 - bucketBits) }
	for _, p := range s.places {
		begins[bucket(p)+1]++
	}
	for i := range 1 << bucketBits {
		begins[i+1] += begins[i]
	}
	s.spread = slices.Grow(s.spread[:0], len(s.places))[:len(s.places)]
	ends := begins
	for _, p := range s.places {
		b := bucket(p)
		s.spread[ends[b]] = p
		ends[b]++
	}
	for i := range 1 << bucketBits {
		slices.SortFunc(s.spread[begins[i]:begins[i+1]], func(a, b place) int {
			if a.hash != b.hash {
				return cmp.Compare(a.hash, b.hash)
			}
			return cmp.Compare(b.at, a.at)
		})
	}
	s.places, s.spread = s.spread, s.places
}

// compactBytes is what an entry needs in a listpack.
func compactBytes(r record) int64 {
	n := int64(len(r.id)) + 2 + 2
	if len(r.id) >= 64 {
		n += 2
	}
	if r.expires != 0 {
		n += 8
	}
	return n
}
