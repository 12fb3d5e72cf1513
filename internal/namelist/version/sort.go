package version

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
	// Count is the number of its entries. Long counts the entries whose ids are longer than
	// form.CompactBytes. Bytes is what Redis' compact encoding needs for all entries.
	Count int64 `json:"count"`
	Long  int64 `json:"long"`
	Bytes int64 `json:"bytes"`
	// Duplicates counts lines whose id occurs again in a later line. Expired counts entries that
	// were dropped because they had expired.
	Duplicates int64 `json:"duplicates"`
	Expired    int64 `json:"expired"`
}

// place says where an entry of a partition is: at is its index. Of equal ids, the highest index
// wins.
type place struct {
	hash uint64
	at   uint32
}

// entry is a record of a partition while it is sorted.
type entry struct {
	record

	line bool // true if it comes from the upload
}

// sorter sorts partitions, and keeps its memory between them.
type sorter struct {
	dir        string
	bits       uint8 // the number of hash bits that divide the partitions
	seed       uint64
	dropBefore int64 // ms; entries that expired before are dropped; 0 drops none
	entries    []entry
	places     []place // places of the entries, by hash after unique
	spread     []place
	out        []byte
	duplicates int64
}

// squeezeAt is the number of entries of a partition at which duplicates are removed early: a file
// may contain one id millions of times.
const squeezeAt = 1 << 19

// sort makes the sorted file of a partition from the files of the other families. Repeated calls
// make the same file.
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

// squeeze drops all entries that were replaced. The others become the first ones.
func (s *sorter) squeeze() {
	s.unique()
	kept := make([]entry, len(s.places))
	for i := range s.places {
		kept[i] = s.entries[s.places[i].at]
		kept[i].id = strings.Clone(kept[i].id) // release the piece of the file
		s.places[i].at = uint32(i)
	}
	s.entries = kept
}

// unique sorts the places by their hashes, and keeps the last of each id.
func (s *sorter) unique() {
	s.sortPlaces()
	kept, group := s.places[:0], 0 // group is the index in kept at which the places with the last hash begin
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

// bucketBits is the number of bits that divide a partition's hashes into buckets of a few entries.
const bucketBits = 14

// sortPlaces sorts the places by hash, and places with the same hash from the last to the first.
// Hashes are spread evenly, so buckets by their top bits leave little to sort. That takes a tenth
// of the time of slices.SortFunc on all places, which was a fifth of an import's time.
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

// compactBytes returns what an entry needs in a listpack.
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
