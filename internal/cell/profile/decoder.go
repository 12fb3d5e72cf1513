package profile

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/freeslot/freeslot"
)

const (
	// textsKept is how many texts of one field a Decoder keeps. A fleet has from tens to hundreds
	// of them. Texts beyond that are decoded each time.
	textsKept = 4096
	// longestKept is the length of the longest text that is kept, in bytes.
	longestKept = 4096
)

// Text is a profile in the form of its hash: every field is JSON, or empty if absent.
type Text struct {
	Languages, Services, Pools, Labels, Features string
}

// Decoder reads profiles. It returns the same value again for a text that it has read already: the
// nodes of a fleet differ little, and decoding and checking a text costs a hundred times more than
// finding it. It is not safe for concurrent use. Drop it after a number of nodes. NewDecoder makes
// one.
type Decoder struct {
	languages texts[freeslot.Languages]
	services  texts[[]freeslot.Service]
	pools     texts[[]string]
	labels    texts[map[string]string]
	features  texts[map[string]bool]
}

// NewDecoder makes a decoder that has read nothing.
func NewDecoder() *Decoder {
	return &Decoder{
		languages: newTexts("capabilities", func(n *freeslot.Node) *freeslot.Languages { return &n.Languages }),
		services:  newTexts("installed_services", func(n *freeslot.Node) *[]freeslot.Service { return &n.Services }),
		pools:     newTexts("pool_ids", func(n *freeslot.Node) *[]string { return &n.Pools }),
		labels:    newTexts("labels", func(n *freeslot.Node) *map[string]string { return &n.Labels }),
		features:  newTexts("features_supported", func(n *freeslot.Node) *map[string]bool { return &n.Features }),
	}
}

// Decode sets all fields of n except its id and max_concurrency, in normal form (see Normalize).
// The lists and maps are shared with other nodes and must not be changed. The error names every
// field that is not JSON or not valid; these are left empty.
func (d *Decoder) Decode(n *freeslot.Node, t Text) error {
	return errors.Join(
		d.languages.set(n, t.Languages), d.services.set(n, t.Services), d.pools.set(n, t.Pools),
		d.labels.set(n, t.Labels), d.features.set(n, t.Features),
	)
}

// texts holds what was read of one field.
type texts[T any] struct {
	field string
	part  func(*freeslot.Node) *T
	known map[string]reading[T]
}

type reading[T any] struct {
	value T
	err   error
}

func newTexts[T any](field string, part func(*freeslot.Node) *T) texts[T] {
	return texts[T]{field: field, part: part, known: make(map[string]reading[T])}
}

func (t *texts[T]) set(n *freeslot.Node, text string) error {
	r, ok := t.known[text]
	if !ok {
		r = t.read(text)
		if len(t.known) < textsKept && len(text) <= longestKept {
			t.known[text] = r
		}
	}
	*t.part(n) = r.value
	return r.err
}

func (t *texts[T]) read(text string) (r reading[T]) {
	n := freeslot.Node{ID: "n", MaxConcurrency: 1} // valid apart from the field, whatever that holds
	var err error
	if text != "" {
		err = json.Unmarshal([]byte(text), t.part(&n))
	}
	if err == nil {
		Normalize(&n)
		err = n.Validate("node")
	}
	if err != nil {
		r.err = fmt.Errorf("field %s: %w", t.field, err)
		return r
	}
	Share(&n)
	r.value = *t.part(&n)
	return r
}
