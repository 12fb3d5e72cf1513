package profile

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/freeslot/freeslot"
)

const (
	// textsKept is how many texts of one field a Decoder keeps. A fleet has some tens
	// to some hundreds; what is beyond that is decoded again each time.
	textsKept = 4096
	// longestKept is the longest text that is kept, in bytes.
	longestKept = 4096
)

// Text is a profile as its hash has it: every field is JSON, or empty where absent.
type Text struct {
	Languages, Services, Pools, Labels, Features string
}

// Decoder reads profiles. What it has read once it hands out again for the same text:
// the nodes of a fleet say little that differs, and to decode and check a text costs
// a hundred times more than to find it. It is not safe for concurrent use, and meant
// to be dropped after a number of nodes; NewDecoder makes one.
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

// Decode sets all of n but its id and max_concurrency, in its normal form (see
// Normalize). The lists and maps are shared with other nodes and must not be changed.
// The error names every field that is not JSON or not valid; these are left empty.
func (d *Decoder) Decode(n *freeslot.Node, t Text) error {
	return errors.Join(
		d.languages.set(n, t.Languages), d.services.set(n, t.Services), d.pools.set(n, t.Pools),
		d.labels.set(n, t.Labels), d.features.set(n, t.Features),
	)
}

// texts are what was read of one field.
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
	n := freeslot.Node{ID: "n", MaxConcurrency: 1} // valid but for the field, whatever that says
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
