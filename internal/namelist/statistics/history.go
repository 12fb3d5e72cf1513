package statistics

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
)

const (
	// MinutesKept is how long history has counts of each minute.
	MinutesKept = 24 * time.Hour
	// HoursKept is how long it has counts of each hour.
	HoursKept = 90 * 24 * time.Hour
	// MaxBytes bounds the history of a list.
	MaxBytes = 100_000
	// MaxApplications bounds the applications with counts of their own.
	MaxApplications = 64
	// Other has the counts of further ones.
	Other = "other"
)

const (
	namesField = "applications"
	// other is the index of Other, and of all applications in chunks without detail by application.
	other = MaxApplications
	day   = 24 * time.Hour
)

// span is a kind of chunk: counts of a day by the hour, or of an hour by the minute.
type span struct {
	kind        byte // the first letter of the field
	chunk, slot time.Duration
	last        time.Duration
}

var spans = [...]span{{'h', day, time.Hour, HoursKept}, {'m', time.Hour, time.Minute, MinutesKept}}

// History has what was counted of one list, by time and application, or of one chain, by time and
// rule: rules then stand where applications do. It is not safe for concurrent use.
//
// Beyond MaxBytes it forgets detail, from the oldest chunk on: first sources and reasons, then
// applications, then minutes. How many lookups were hits, misses and unknown is kept to the end.
type History struct {
	chain  bool
	names  []string // of applications, by index; empty for an index that is free
	chunks map[string]string
	set    map[string]bool // fields that changed
	drop   map[string]bool // fields that were removed
}

// Decode makes the history of a list or a chain, by its mark, from the fields of its hash. A field
// that cannot be read counts as empty: statistics are worth no outage.
func Decode(mark string, fields map[string]string) *History {
	h := &History{chunks: make(map[string]string), set: make(map[string]bool), drop: make(map[string]bool)}
	_, h.chain = namelist.ChainOf(mark)
	for field, text := range fields {
		if _, _, ok := fieldAt(field); ok {
			h.chunks[field] = text
		}
	}
	if text, there := fields[namesField]; there {
		if json.Unmarshal([]byte(text), &h.names) != nil || len(h.names) > MaxApplications {
			h.names = nil
		}
	}
	return h
}

// fieldAt returns the span of a field, and where its chunk begins.
func fieldAt(field string) (s span, at time.Time, ok bool) {
	for _, s := range spans {
		n, err := strconv.ParseInt(strings.TrimPrefix(field, string(s.kind)), 10, 32)
		if len(field) > 1 && field[0] == s.kind && err == nil && n >= 0 {
			return s, time.Unix(0, 0).Add(time.Duration(n) * s.chunk), true
		}
	}
	return s, at, false
}

func (s span) field(at time.Time) string {
	return string(s.kind) + strconv.FormatInt(at.Unix()/int64(s.chunk/time.Second), 10)
}

// place is a place in a chunk.
type place struct{ slot, application uint8 }

// Changes returns the fields to write and to remove since Decode.
func (h *History) Changes() (set map[string]string, drop []string) {
	set = make(map[string]string)
	for field := range h.set {
		if field == namesField {
			text, _ := json.Marshal(h.names) // texts can be encoded
			set[field] = string(text)
		} else if text, there := h.chunks[field]; there {
			set[field] = text
		}
	}
	for field := range h.drop {
		if _, back := h.chunks[field]; !back {
			drop = append(drop, field)
		}
	}
	return set, drop
}

// overhead is the size of the fields seq and applications without names.
const overhead = 64

// Bytes returns the size of the history.
func (h *History) Bytes() (n int) {
	n = overhead
	for field, text := range h.chunks {
		n += len(field) + len(text)
	}
	for _, name := range h.names {
		n += len(name) + 3
	}
	return n
}

// Add adds what applications have counted until at.
func (h *History) Add(at time.Time, counted map[string]count.Counts) {
	h.expire(at)
	for _, s := range spans {
		field := s.field(at)
		_, begin, _ := fieldAt(field)
		slot := uint8(at.Sub(begin) / s.slot)
		cells := h.chunk(field)
		for _, name := range slices.Sorted(maps.Keys(counted)) {
			c := counted[name]
			p := place{slot, h.index(name)}
			sum := cells[p]
			sum.Add(&c)
			cells[p] = sum
		}
		h.put(field, whole, cells)
	}
	h.shrink(at)
}

func (h *History) chunk(field string) map[place]count.Counts {
	cells, err := decodeChunk(h.chunks[field])
	if err != nil {
		return make(map[place]count.Counts)
	}
	return cells
}

func (h *History) put(field string, has byte, cells map[place]count.Counts) {
	h.chunks[field], h.set[field] = encodeChunk(has, cells), true
}

func (h *History) remove(field string) {
	delete(h.chunks, field)
	h.drop[field] = true
}

// index returns the index of an application, and gives it a free one.
func (h *History) index(name string) uint8 {
	if i := slices.Index(h.names, name); i >= 0 {
		return uint8(i)
	}
	if name == Other {
		return other
	}
	free := slices.Index(h.names, "")
	if free < 0 && len(h.names) == MaxApplications {
		h.reuse()
		free = slices.Index(h.names, "")
	}
	if free < 0 && len(h.names) == MaxApplications {
		return other
	}
	h.set[namesField] = true
	if free < 0 {
		h.names = append(h.names, name)
		return uint8(len(h.names) - 1)
	}
	h.names[free] = name
	return uint8(free)
}

// reuse frees the indexes of applications that have no counts left.
func (h *History) reuse() {
	used := make(map[uint8]bool)
	for field := range h.chunks {
		for p := range h.chunk(field) {
			used[p.application] = true
		}
	}
	for i := range h.names {
		if !used[uint8(i)] {
			h.names[i] = ""
			h.set[namesField] = true
		}
	}
}

func (h *History) name(index uint8) string {
	if int(index) < len(h.names) && h.names[index] != "" {
		return h.names[index]
	}
	return Other
}

func (h *History) expire(now time.Time) {
	for field := range h.chunks {
		s, at, _ := fieldAt(field)
		// A chunk from the future comes from a clock that was put back since.
		if at.Add(s.chunk).Before(now.Add(-s.last)) || at.After(now.Add(s.chunk)) {
			h.remove(field)
		}
	}
}

// shrink forgets detail beyond MaxBytes, and then some more, so that it is not due each time.
func (h *History) shrink(now time.Time) {
	if h.Bytes() <= MaxBytes {
		return
	}
	const enough = MaxBytes * 9 / 10
	type step struct {
		kind byte
		now  bool
		do   func(field string)
	}
	for _, step := range []step{
		{'h', false, h.plain},
		{'m', false, h.plain},
		{'h', false, h.join},
		{'m', false, h.join},
		{'m', true, h.plain},
		{'h', true, h.plain},
		{'m', true, h.join},
		{'h', true, h.join},
		{'m', false, h.remove},
		{'h', false, h.remove},
	} {
		for _, field := range h.fields(step.kind, now, step.now) {
			if h.Bytes() <= enough {
				return
			}
			step.do(field)
		}
	}
}

// fields returns the fields of chunks of a kind, the oldest first: the one of now, or all others.
func (h *History) fields(kind byte, now time.Time, current bool) (fields []string) {
	for field := range h.chunks {
		if s, _, _ := fieldAt(field); s.kind == kind && (field == s.field(now)) == current {
			fields = append(fields, field)
		}
	}
	slices.SortFunc(fields, func(a, b string) int {
		if c := len(a) - len(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return fields
}

// What a chunk still has, its first byte.
const (
	whole byte = iota
	plain      // no sources and reasons
	bare       // no applications either
)

func (h *History) has(field string) byte {
	if text := h.chunks[field]; text != "" {
		return text[0]
	}
	return bare
}

// plain forgets sources and reasons of a chunk. A chain has none.
func (h *History) plain(field string) {
	if h.chain || h.has(field) >= plain {
		return
	}
	cells := h.chunk(field)
	for p, c := range cells {
		cells[p] = c.Plain()
	}
	h.put(field, plain, cells)
}

// join forgets the applications of a chunk, too.
func (h *History) join(field string) {
	if h.has(field) >= bare {
		return
	}
	joined := make(map[place]count.Counts)
	for p, c := range h.chunk(field) {
		if p.application = other; !h.chain {
			c = c.Plain()
		}
		sum := joined[p]
		sum.Add(&c)
		joined[p] = sum
	}
	h.put(field, bare, joined)
}

// A chunk has a byte that says what it still has. Rows follow, of slot, application, which counters
// are not 0 as a bit set, and these.
func encodeChunk(has byte, cells map[place]count.Counts) string {
	places := slices.SortedFunc(maps.Keys(cells), func(a, b place) int {
		return int(a.slot)<<8 + int(a.application) - int(b.slot)<<8 - int(b.application)
	})
	out := []byte{has}
	for _, p := range places {
		c, set := cells[p], uint64(0)
		for i, n := range c {
			if n != 0 {
				set |= 1 << i
			}
		}
		out = binary.AppendUvarint(append(out, p.slot, p.application), set)
		for ; set != 0; set &= set - 1 {
			out = binary.AppendUvarint(out, c[bits.TrailingZeros64(set)])
		}
	}
	return string(out)
}

var errChunk = errors.New("it is no chunk of history")

func decodeChunk(text string) (map[place]count.Counts, error) {
	cells, data := make(map[place]count.Counts), []byte(text)
	number := func() (n uint64, ok bool) {
		n, size := binary.Uvarint(data)
		if size <= 0 {
			return 0, false
		}
		data = data[size:]
		return n, true
	}
	if len(data) > 0 {
		data = data[1:]
	}
	for len(data) > 0 {
		if len(data) < 2 || data[0] >= 60 || data[1] > other {
			return nil, errChunk
		}
		p := place{data[0], data[1]}
		data = data[2:]
		set, ok := number()
		if _, twice := cells[p]; !ok || twice || set>>count.Cells != 0 {
			return nil, errChunk
		}
		var c count.Counts
		for ; set != 0; set &= set - 1 {
			n, ok := number()
			if !ok {
				return nil, errChunk
			}
			c[bits.TrailingZeros64(set)] = n
		}
		cells[p] = c
	}
	return cells, nil
}

// Point is what was counted in one minute or hour.
type Point struct {
	At     time.Time // its beginning
	Counts count.Counts
}

// Summary is what was counted in a time.
type Summary struct {
	// Step is a minute or an hour.
	Step         time.Duration
	Total        count.Counts
	Applications map[string]count.Counts
	// Points has the minutes or hours in which something was counted, the oldest first.
	Points []Point
}

// Summary sums up the history from a time on, of one application, or of all for "".
func (h *History) Summary(since time.Time, step time.Duration, application string) Summary {
	out := Summary{Step: step, Applications: make(map[string]count.Counts)}
	points := make(map[time.Time]count.Counts)
	for field := range h.chunks {
		s, begin, _ := fieldAt(field)
		if s.slot != step {
			continue
		}
		for p, c := range h.chunk(field) {
			at, name := begin.Add(time.Duration(p.slot)*step), h.name(p.application)
			if !at.Add(step).After(since) || application != "" && application != name {
				continue
			}
			sum, point := out.Applications[name], points[at]
			sum.Add(&c)
			point.Add(&c)
			out.Applications[name], points[at] = sum, point
			out.Total.Add(&c)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(points), time.Time.Compare) {
		out.Points = append(out.Points, Point{at, points[at]})
	}
	return out
}
