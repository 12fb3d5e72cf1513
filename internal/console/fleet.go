package console

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"
)

const (
	// fleetPeriod is the time between two frames of the topic fleet.
	fleetPeriod = time.Second / 2
	// fleetVersion is the first byte of its frames. No JSON begins so, and package socket sends such
	// a frame as a binary one.
	fleetVersion = 1
	// fleetAnew is the flag of a frame that is relative to nothing.
	fleetAnew = 1
	// fleetNamed is added to a node's state where the node's name follows.
	fleetNamed = 0x80
	// fleetHead is the length of a frame without nodes.
	fleetHead = 46
	// fleetPart bounds a frame, in bytes, from above one node. What does not fit comes in the next
	// one.
	fleetPart = 512 << 10
)

// fleetFrame returns what has changed of the nodes' figures since a change, and the change up to
// which that is all. docs/console.md has the layout.
func fleetFrame(h *hub, head frame, since uint64) (text []byte, through uint64, empty bool) {
	r := h.roster
	var news []int
	size := fleetHead
	for i := range r.rows {
		w := &r.rows[i]
		if w.changed <= since && w.named <= since || since == 0 && w.state == nodeGone {
			continue
		}
		news = append(news, i)
		size += entrySize(w)
	}
	through = r.changes
	if size > r.part {
		news, through = r.oldest(news, since)
	}
	flags := byte(0)
	if since == 0 {
		flags = fleetAnew
	}
	text = append(make([]byte, 0, min(size, r.part)), fleetVersion, flags)
	for _, n := range []uint64{head.Seq, uint64(head.AtMS), since, through} {
		text = binary.LittleEndian.AppendUint64(text, n)
	}
	for _, n := range []int64{r.ageUnit().Milliseconds(), r.Stale.Milliseconds(), int64(len(news))} {
		text = binary.LittleEndian.AppendUint32(text, uint32(n))
	}
	next := 0
	for _, i := range news {
		text = binary.AppendUvarint(text, uint64(i-next))
		text = r.rows[i].append(text, since)
		next = i + 1
	}
	return text, through, len(news) == 0
}

// oldest keeps the rows with the oldest news, as many as fit into a frame, in order of their
// places. What is left over has no news up to through: a row whose name is news waits by its name.
func (r *roster) oldest(news []int, since uint64) (kept []int, through uint64) {
	first := func(i int) uint64 {
		if w := &r.rows[i]; w.named > since {
			return w.named
		}
		return r.rows[i].changed
	}
	slices.SortFunc(news, func(a, b int) int { return cmp.Compare(first(a), first(b)) })
	size := fleetHead
	for n, i := range news {
		if size += entrySize(&r.rows[i]); size > r.part {
			news = news[:n]
			break
		}
		through = first(i)
	}
	slices.Sort(news)
	return news, through
}

// entrySize returns the most bytes that a row takes in a frame.
func entrySize(w *row) int { return binary.MaxVarintLen32 + 9 + 2 + len(w.id) }

func (w *row) append(to []byte, since uint64) []byte {
	if w.state == nodeGone {
		return append(to, byte(nodeGone))
	}
	state := byte(w.state)
	named := w.named > since
	if named {
		state |= fleetNamed
	}
	to = append(to, state)
	to = binary.LittleEndian.AppendUint16(to, w.used)
	to = binary.LittleEndian.AppendUint16(to, w.max)
	to = append(to, w.cpu, w.memory, w.gpu, w.age)
	if named {
		to = append(to, w.cell, byte(len(w.id)))
		to = append(to, w.id...)
	}
	return to
}

// asJSON returns a frame as it is, or a binary one as the data of a frame of the topic, in base64.
func asJSON(topic string, text []byte) json.RawMessage {
	if len(text) < fleetHead || text[0] != fleetVersion {
		return text
	}
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // bytes
	}
	seq, at := binary.LittleEndian.Uint64(text[2:]), binary.LittleEndian.Uint64(text[10:])
	return encode(&frame{Topic: topic, Seq: seq, AtMS: int64(at), Data: data})
}
