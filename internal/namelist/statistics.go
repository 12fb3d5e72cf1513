package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

// Counted is what clients have counted of a list or a chain, and what is kept of it.
type Counted struct {
	// At is Redis' time.
	At      time.Time
	Reports []CountedReport
	// Known has the last text of each reader that is in the history, by CountedReport.Reader.
	Known map[string]string
	// History has the fields of the history's hash.
	History map[string]string
}

// CountedReport is the text that a client has reported last.
type CountedReport struct {
	// Reader is owner and client with a space between; without owner for a process with Redis.
	Reader string
	// Owner is as in Client.
	Owner  string
	Counts string
	// Left is true if the client has closed. raw is the report as it is stored.
	Left bool
	raw  string
}

// CountedWrite is what to keep of counts. Seq must differ each time.
type CountedWrite struct {
	Seq string
	// Known holds what was counted by reader. Forget names readers to forget.
	Known   map[string]string
	Forget  []string
	History map[string]string
	// Drop names fields of the history to remove.
	Drop []string
	// Left holds the reports to remove, of clients that have closed.
	Left []CountedReport
}

// seqField is the field of the history that another replica's write changes.
const seqField = "seq"

// CountTurns returns lists, and marks of chains, whose counts are due to be added up. They are then
// the caller's for every: no other replica gets them.
func (c *Control) CountTurns(ctx context.Context, every time.Duration, most int) ([]string, error) {
	lists, err := c.runner.Call(
		ctx, scripts["stats_turn"], []string{c.k.index(), c.k.turns()}, []string{milliseconds(every), number(int64(most))},
	).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("turns of statistics: %w", noMemory(err))
	}
	return lists, nil
}

// Counted reads what clients have counted of a list, or of a chain by its mark, and what is kept of
// it.
func (c *Control) Counted(ctx context.Context, list string) (out Counted, err error) {
	if err := ValidateMark("list", list); err != nil {
		return out, err
	}
	keys := []string{c.k.clients(list), c.k.readers(list), c.k.counted(list), c.k.history(list)}
	r := script.ReadReply(c.runner.Read(ctx, scripts["stats_read"], keys, nil))
	out.At = redisTime(&r)
	hash := func(each func(field, value string)) {
		v, ok := r.Next()
		var all []rueidis.RedisMessage
		if ok {
			all, r.Err = v.ToArray()
		}
		inner := script.Reply{Values: all}
		for r.Err == nil && len(inner.Values) > 0 {
			field, value := inner.Text(), inner.Text()
			if r.Err = inner.Err; r.Err == nil {
				each(field, value)
			}
		}
	}
	for range 2 {
		hash(func(reader, raw string) {
			if one, ok := readCounted(reader, raw); ok {
				out.Reports = append(out.Reports, one)
			}
		})
	}
	out.Known, out.History = make(map[string]string), make(map[string]string)
	hash(func(reader, text string) { out.Known[reader] = text })
	hash(func(field, value string) { out.History[field] = value })
	if r.Err != nil {
		return Counted{}, fault("read statistics of", list, r.Err)
	}
	return out, nil
}

// readCounted reads a stored report. ok is false if it has no counts.
func readCounted(reader, raw string) (one CountedReport, ok bool) {
	one = CountedReport{Reader: reader, Owner: direct, raw: raw}
	if i := strings.LastIndexByte(reader, ' '); i >= 0 {
		one.Owner = reader[:i]
	}
	text, left := strings.CutPrefix(raw, leftBy)
	one.Left = left
	_, text, _ = strings.Cut(text, " ")
	var report struct {
		Counts string `json:"counts"`
	}
	ok = json.Unmarshal([]byte(text), &report) == nil && report.Counts != ""
	one.Counts = report.Counts
	return one, ok
}

// KeepCounted keeps counts. It returns false, and keeps nothing, if another replica has written
// since read, or the list is gone. Later, Counted no longer has what was kept for longer than last.
func (c *Control) KeepCounted(
	ctx context.Context, list string, read *Counted, w CountedWrite, last time.Duration,
) (bool, error) {
	keys := []string{
		c.k.history(list), c.k.counted(list), c.k.clients(list), c.k.readers(list), c.k.readerCounts(list), c.k.index(),
	}
	pairs := func(m map[string]string) (out []string) {
		for field, value := range m {
			out = append(out, field, value)
		}
		return out
	}
	history, known := pairs(w.History), pairs(w.Known)
	args := []string{list, read.History[seqField], w.Seq, milliseconds(last)}
	for _, part := range [][]string{history, w.Drop, known, w.Forget} {
		args = append(args, number(int64(len(part))))
	}
	args = slices.Concat(args, history, w.Drop, known, w.Forget)
	for _, one := range w.Left {
		args = append(args, one.Reader, one.raw)
	}
	code, err := c.runner.Call(ctx, scripts["stats_write"], keys, args).AsInt64()
	if err != nil {
		return false, fault("write statistics of", list, noMemory(err))
	}
	return code == codeDone, nil
}
