package namelist

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Bounds of readers' requests by HTTP.
const (
	// MaxCheck is the largest number of ids in a check.
	MaxCheck = 1000
	// MaxWait is the longest wait for a change.
	MaxWait = 30 * time.Second
)

// ListMarksRequest holds what a reader knows of lists.
type ListMarksRequest struct {
	// The tags document Lists and the rest for readers of the API.
	Lists   map[string]Mark `json:"lists" doc:"Up to 1000 lists by their names, with the mark that the caller knows; {} for none. chain_<chain> is a chain."`
	WaitMS  int64           `json:"wait_ms,omitempty" doc:"How long to wait, up to 30000, until a mark is another one. Absent means not at all."`
	History bool            `json:"history,omitempty" doc:"Whether to tell the history."`
}

// ListMarks holds the marks of lists.
type ListMarks struct {
	AtMS    int64           `json:"at_ms" doc:"Redis' time when the marks were read."`
	History string          `json:"history,omitempty" doc:"Identifies the server's data: with another one all is to be read again. It was asked for, or is absent."`
	Lists   map[string]Mark `json:"lists" doc:"The lists of the request; one that is not there has revision 0."`
}

// ListDelta is a [Delta] in HTTP.
type ListDelta struct {
	AtMS    int64      `json:"at_ms" doc:"Redis' time when it was read."`
	History string     `json:"history" doc:"Identifies the server's data: with another one all is to be read again."`
	Head    *ListHead  `json:"head,omitempty" doc:"Absent: there is no such list, and never was."`
	Edits   []ListEdit `json:"edits" doc:"Those after the revision, in their order; of up to about 5000 entries."`
	More    bool       `json:"more,omitempty" doc:"There are later ones: ask again with the revision of the last."`
}

// ListHead holds what readers must know of a list.
type ListHead struct {
	Birth     string   `json:"birth" doc:"Identifies one life of the list."`
	Revision  int64    `json:"revision"`
	State     State    `json:"state" doc:"deleting and deleted: the list answers unknown."`
	Form      string   `json:"form" doc:"Of ids: exact, lower or integer."`
	Seed      string   `json:"seed" doc:"Of the hash of ids, XXH3-64; hexadecimal."`
	ExpiresMS int64    `json:"expires_ms,omitempty" doc:"When the whole list ends, by Redis' clock."`
	ExpiredNo bool     `json:"expired_no,omitempty" doc:"Whether it answers no then, and not unknown."`
	Whole     bool     `json:"whole,omitempty" doc:"Whether readers hold all ids."`
	Floor     int64    `json:"floor,omitempty" doc:"Edits up to this revision may be missing."`
	Serving   *Version `json:"serving,omitempty" doc:"The version that answers; absent: unknown."`
	Next      *Version `json:"next,omitempty" doc:"The version to load before a switch."`
}

// ListEdit is an [Edit] in HTTP.
type ListEdit struct {
	Revision int64    `json:"revision"`
	Entries  []Change `json:"entries"`
}

// ListCheck asks the segments of one build for ids.
type ListCheck struct {
	Version int64    `json:"version"`
	Build   string   `json:"build" doc:"The build id of the version. With another one, or when the version is gone, the answer is conflict for the field build: read the head again."`
	IDs     []string `json:"ids" doc:"1 to 1000."`
}

// ListChecked holds the answers of the segments. The caller must look at edits first.
type ListChecked struct {
	Found []ListFound `json:"found" doc:"In the order of the ids."`
}

// ListIDs holds all ids of a version.
type ListIDs struct {
	IDs map[string]int64 `json:"ids" doc:"With the time when each ends, by Redis' clock in milliseconds since 1970; 0 for never."`
}

// ListReports holds what a client has loaded and serves.
type ListReports struct {
	Client string                  `json:"client" doc:"The client's name; it must be its own among clients with its token."`
	Lists  map[string]ClientReport `json:"lists" doc:"Up to 100 lists by their names. A client is live for 15 s after each."`
}

// ListReported is the answer to a report.
type ListReported struct {
	Refused []string `json:"refused,omitempty" doc:"Lists on which the tenant has 1000 other live clients, so that this report does not count."`
}

// Wire returns the delta as HTTP readers get it: without what only operators may see.
func (d *Delta) Wire() ListDelta {
	h, out := &d.Head, ListDelta{
		AtMS: d.Head.At.UnixMilli(), History: d.History, More: d.More, Edits: make([]ListEdit, len(d.Edits)),
	}
	for i, e := range d.Edits {
		out.Edits[i] = ListEdit{e.Revision, e.Changes}
	}
	if h.Birth == "" {
		return out
	}
	out.Head = &ListHead{
		Birth: h.Birth, Revision: h.Revision, State: h.State, Form: string(h.Form), Seed: fmt.Sprintf("%016x", h.Seed),
		ExpiredNo: h.ExpiredNo, Whole: h.Whole, Floor: h.Floor, Serving: h.Serving.forReaders(), Next: h.Next.forReaders(),
	}
	if !h.Expires.IsZero() {
		out.Head.ExpiresMS = h.Expires.UnixMilli()
	}
	return out
}

func (v *Version) forReaders() *Version {
	if v == nil {
		return nil
	}
	out := *v
	out.Author, out.Note, out.Doubt = "", "", ""
	return &out
}

// DecodeDelta decodes the JSON of a [ListDelta] about edits after a revision.
func DecodeDelta(list string, text []byte, after int64) (d Delta, err error) {
	var w ListDelta
	if err = json.Unmarshal(text, &w); err == nil {
		d, err = w.delta(list, after)
	}
	if err != nil {
		return Delta{}, fmt.Errorf("changes of list %s: %w", list, err)
	}
	return d, nil
}

func (w *ListDelta) delta(list string, after int64) (d Delta, err error) {
	d = Delta{Head: Head{Name: list, At: time.UnixMilli(w.AtMS)}, History: w.History, More: w.More}
	if w.Head == nil {
		return d, nil
	}
	h := w.Head
	seed, err := strconv.ParseUint(h.Seed, 16, 64)
	if h.State == Deleted { // a tombstone has none
		err = nil
	}
	switch {
	case err != nil:
		return d, fmt.Errorf("seed is %q", h.Seed)
	case h.Birth == "" || h.Revision < 1 || h.Floor < 0 || h.ExpiresMS < 0:
		return d, fmt.Errorf("birth %q, revision %d, floor %d, expires_ms %d", h.Birth, h.Revision, h.Floor, h.ExpiresMS)
	}
	d.Head = Head{
		Name: list, At: d.Head.At, Birth: h.Birth, Revision: h.Revision, State: h.State, Form: form.Form(h.Form), Seed: seed,
		ExpiredNo: h.ExpiredNo, Whole: h.Whole, Floor: h.Floor, Serving: h.Serving, Next: h.Next,
	}
	if h.ExpiresMS != 0 {
		d.Head.Expires = time.UnixMilli(h.ExpiresMS)
	}
	for _, e := range w.Edits {
		if e.Revision <= after || e.Revision > h.Revision {
			return d, fmt.Errorf("an edit of revision %d after %d, of a list at %d", e.Revision, after, h.Revision)
		}
		after = e.Revision
		d.Edits = append(d.Edits, Edit{e.Revision, e.Entries})
	}
	return d, nil
}

// DecodeMarks decodes the JSON of a [ListMarks] about lists in their order.
func DecodeMarks(text []byte, names []string) (marks []Mark, history string, at time.Time, err error) {
	var w ListMarks
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, "", at, fmt.Errorf("marks of lists: %w", err)
	}
	marks = make([]Mark, len(names))
	for i, name := range names {
		m, there := w.Lists[name]
		if !there || m.Revision < 0 || (m.Revision == 0) != (m.Birth == "") {
			return nil, "", at, fmt.Errorf("marks of lists: list %s has none, or %+v", name, m)
		}
		marks[i] = m
	}
	return marks, w.History, time.UnixMilli(w.AtMS), nil
}

// DecodeFound decodes the JSON of a [ListChecked] about that number of ids.
func DecodeFound(text []byte, ids int) ([]ListFound, error) {
	var w ListChecked
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("answer to a check: %w", err)
	}
	if len(w.Found) != ids {
		return nil, fmt.Errorf("answer to a check: it has %d ids, expected %d", len(w.Found), ids)
	}
	for i, f := range w.Found {
		if f.ExpiresMS < 0 {
			w.Found[i] = ListFound{Why: WhyFormat}
		}
	}
	return w.Found, nil
}

// DecodeIDs decodes the JSON of a [ListIDs] of a version.
func DecodeIDs(list string, v *Version, text []byte) (map[string]int64, error) {
	var w ListIDs
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, fmt.Errorf("ids of list %s: %w", list, err)
	}
	for _, expires := range w.IDs {
		if expires < 0 {
			return nil, fmt.Errorf("ids of list %s: an expiry is no time", list)
		}
	}
	return w.IDs, v.Complete(list, w.IDs)
}
