package history

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// scale is the precision of a sum in an entry: parts of one.
const scale = 100

// Minute is an entry: what is known of one minute.
type Minute struct {
	// AtMS is when the minute began, in milliseconds since 1970 by Redis' clock.
	AtMS int64
	// Text is the encoded point.
	Text string
}

// encode returns the point as a short binary text, with the groups of Figures.Encode.
func (p *point) encode() string {
	b := binary.AppendUvarint([]byte{version}, uint64(p.covered))
	b = binary.AppendUvarint(b, uint64(p.seen))
	group := func(values []float32, scale, add float64) {
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = binary.AppendUvarint(b, uint64(math.Round((float64(v)+add)*scale)))
		}
	}
	group(p.sums[:counters], scale, 0)
	group(p.sums[endsAt:histogramsAt], scale, 0)
	group(p.levels[:gauges], 1, -none)
	group(p.levels[gauges:], 1, -none)
	for h := range histograms {
		group(p.sums[histogramsAt+h*buckets:][:buckets], scale, 0)
	}
	group([]float32{p.parted}, 1, 0)
	return string(b)
}

// decodePoint reads an entry, as Decode does.
func decodePoint(text string) (p point, err error) {
	if len(text) == 0 || len(text) > maxBytes || text[0] != version {
		return p, errForeign
	}
	r := reader{rest: []byte(text[1:])}
	p.covered, p.seen = float32(r.next()), float32(r.next())
	group := func(into []float32, scale, add float64) (n int) {
		values := make([]uint64, len(into))
		n = r.group(values)
		for i, v := range values {
			into[i] = float32(float64(v)/scale - add)
		}
		return n
	}
	group(p.sums[:counters], scale, 0)
	group(p.sums[endsAt:histogramsAt], scale, 0)
	group(p.levels[:gauges], 1, -none)
	group(p.levels[gauges:], 1, -none)
	for h := range histograms {
		into := p.sums[histogramsAt+h*buckets:][:buckets]
		if group(into, scale, 0) != buckets {
			clear(into)
		}
	}
	var parted [1]float32
	group(parted[:], 1, 0)
	p.parted = parted[0]
	step := float32(time.Duration(Coarse).Milliseconds())
	if r.bad || p.covered > step || p.seen > step || p.parted > step {
		return point{}, errForeign
	}
	return p, nil
}

// Due returns the minutes after the one that began at last that are over, and that the replica self
// writes down, oldest first, ten at most; and when the last of all of them began. Of the replicas
// that keep the history and ran for the whole minute one writes, by rendezvous.
func (h *History) Due(self string, last int64) (due []Minute, newest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[len(h.rings)-1]
	newest = max(h.ready/r.step-1, 0) * r.step
	first := max(last+r.step, h.began/r.step*r.step) // what was before came from Redis
	for at := max(first, newest-9*r.step); at <= newest; at += r.step {
		p := r.get(at / r.step)
		if p == nil || p.covered == 0 || !h.writes(self, at) {
			continue
		}
		due = append(due, Minute{AtMS: at, Text: p.encode()})
	}
	return due, newest
}

// writes reports whether the replica self writes down the minute that began at this time. The
// caller holds mu.
func (h *History) writes(self string, at int64) bool {
	var names, whole []string
	for name, k := range h.replicas {
		if !k.figures.Keeps {
			continue
		}
		if names = append(names, name); k.figures.StartMS <= at {
			whole = append(whole, name)
		}
	}
	if len(whole) > 0 {
		names = whole
	}
	if !slices.Contains(names, self) {
		return false
	}
	slices.Sort(names)
	return selection.NewShare(self, names).Has(time.UnixMilli(at).UTC().Format(time.RFC3339))
}

// Restore adds minutes from before the first report of this process. It leaves out the others, and
// minutes of another release.
func (h *History) Restore(minutes []Minute) {
	h.mu.Lock()
	defer h.mu.Unlock()
	step := time.Duration(Coarse).Milliseconds()
	for _, m := range minutes {
		p, err := decodePoint(m.Text)
		if err != nil || m.AtMS%step != 0 || h.began > 0 && m.AtMS+step > h.began {
			continue
		}
		for _, r := range h.rings {
			r.spread(m.AtMS, m.AtMS+step, func(into *point, _, part float32) {
				for i, n := range p.sums {
					into.sums[i] += n * part
				}
				into.covered += p.covered * part
				into.seen += p.seen * part
				into.parted += p.parted * part
				for i, v := range p.levels {
					into.levels[i] = max(into.levels[i], v)
				}
			})
		}
	}
}
