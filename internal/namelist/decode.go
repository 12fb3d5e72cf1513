package namelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/script"
)

// Event is one message of a list's channel.
type Event struct {
	Revision int64
	At       time.Time // by Redis' clock
	Birth    string
	// History identifies the server's data, as Delta's does; empty if unknown.
	History string
	// Head is nil if only entries have changed.
	Head *Head
	// Changes holds the entries of an edit. An event with neither Head nor Changes stands for an
	// edit that is too large for a message: the delta has it.
	Changes []Change
}

// DecodeEvent decodes a message of a list's channel.
func DecodeEvent(list, message string) (Event, error) {
	var m struct {
		Revision int64  `json:"revision"`
		At       int64  `json:"at"`
		Birth    string `json:"birth"`
		History  string `json:"history"`
		Head     *struct {
			Record        []string `json:"record"`
			Serving, Next string
		} `json:"head"`
		Entries []Change `json:"entries"`
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		return Event{}, fmt.Errorf("event of list %s: %w", list, err)
	}
	if m.Revision < 1 || m.Birth == "" {
		return Event{}, fmt.Errorf("event of list %s: it has no revision or no birth", list)
	}
	e := Event{Revision: m.Revision, At: time.UnixMilli(m.At), Birth: m.Birth, History: m.History, Changes: m.Entries}
	if m.Head != nil {
		h, err := DecodeHead(list, m.Head.Record, m.Head.Serving, m.Head.Next)
		if err != nil {
			return Event{}, fmt.Errorf("event of list %s: %w", list, err)
		}
		h.At = e.At
		e.Head = &h
	}
	return e, nil
}

// DecodeHead makes a head from the fields of a record, in which name and value alternate, and the
// JSON of its versions, empty for none. It ignores unknown fields. Without fields it returns the
// zero Head with a name, which means that there is no such list.
//
//nolint:funlen // one flat switch over the fields
func DecodeHead(list string, record []string, serving, next string) (Head, error) {
	h := Head{Name: list, raw: rawOf(record)}
	if len(record)%2 != 0 {
		return h, errors.New("a field of the record has no value")
	}
	var bad error
	var named [2]int64
	for ; len(record) > 0; record = record[2:] {
		field, value := record[0], record[1]
		whole := func() int64 {
			if value == "" {
				return 0
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				bad = fmt.Errorf("field %s of the record is %q", field, value)
			}
			return n
		}
		at := func() (t time.Time) {
			if ms := whole(); ms != 0 {
				t = time.UnixMilli(ms)
			}
			return t
		}
		switch field {
		case "birth":
			h.Birth = value
		case "form":
			h.Form = form.Form(value)
		case "seed":
			var err error
			if h.Seed, err = strconv.ParseUint(value, 16, 64); err != nil {
				bad = fmt.Errorf("field seed of the record is %q", value)
			}
		case "server":
			h.Server = value
		case "expected":
			h.Expected = whole()
		case "filter":
			h.Filter = filter.Kind(value)
		case "expires":
			h.Expires = at()
		case "on_expired":
			h.ExpiredNo = value == "no"
		case "whole":
			h.Whole = value == "1"
		case "revision":
			h.Revision = whole()
		case "state":
			h.State = State(value)
		case "serving":
			named[0] = whole()
		case "next":
			named[1] = whole()
		case "number":
			h.Number = whole()
		case "edited":
			h.Edited = whole()
		case "floor":
			h.Floor = whole()
		case "unapproved":
			h.unapproved = value
		case "owner":
			h.Owner.Application = value
		case "owner_tenant":
			h.Owner.Tenant = value
		case "grants":
			if err := json.Unmarshal([]byte(value), &h.Grants); err != nil {
				bad = fmt.Errorf("field grants of the record: %w", err)
			}
		case "op":
			h.Op.ID = value
		case "op_kind":
			h.Op.Kind = OpKind(value)
		case "op_number":
			h.Op.Number = whole()
		case "op_base":
			h.Op.Base = whole()
		case "op_edited":
			h.Op.Edited = whole()
		case "op_server":
			h.Op.Server = value
		case "op_bytes":
			h.Op.Bytes = whole()
		case "op_segments":
			h.Op.Segments = uint32(whole())
		case "op_blocks":
			h.Op.Blocks = uint32(whole())
		case "former":
			h.Op.Former = State(value)
		case "holder":
			h.Op.Holder = value
		case "why":
			h.Op.Why = value
		case "since":
			h.Op.Since = at()
		case "lease":
			h.Op.Lease = at()
		}
	}
	if bad != nil {
		return h, bad
	}
	var err error
	if h.Serving, err = decodeVersion(serving); err == nil {
		h.Next, err = decodeVersion(next)
	}
	h.lost = named[0] != 0 && h.Serving == nil || named[1] != 0 && h.Next == nil
	return h, err
}

// decided lists the fields that a step's caller saw, in the order of step.lua.
var decided = [...]string{"birth", "state", "op", "holder", "lease", "serving", "next", "floor"}

func rawOf(record []string) string {
	var values [len(decided)]string
	for i := 0; i+1 < len(record); i += 2 {
		if at := slices.Index(decided[:], record[i]); at >= 0 {
			values[at] = record[i+1]
		}
	}
	return strings.Join(values[:], " ")
}

func decodeVersion(text string) (*Version, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no version is no error
	}
	v := new(Version)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("version: %w", err)
	}
	return v, nil
}

// readHead reads what lib/head.lua returns.
func readHead(r *script.Reply, list string, at time.Time) (h Head) {
	v, ok := r.Next()
	if !ok {
		return h
	}
	inner := script.ReadReply(&v)
	flat, ok := inner.Next()
	var record []string
	if ok {
		record, inner.Err = flat.AsStrSlice()
	}
	serving, next := inner.Text(), inner.Text()
	if r.Err = inner.Err; r.Err == nil {
		h, r.Err = DecodeHead(list, record, serving, next)
		h.At = at
	}
	return h
}

// redisTime reads a time of Redis' clock, in ms.
func redisTime(r *script.Reply) time.Time { return time.UnixMilli(r.Number()) }
