package chain

import "encoding/json"

// Mark identifies a state of a chain. The zero Mark means that there is no such chain.
type Mark struct {
	// Birth identifies one life of the chain: a deleted chain that is made again gets another one.
	Birth    string `json:"birth"`
	Revision int64  `json:"revision"`
}

// Head is what readers must know of a chain.
type Head struct {
	Mark

	// Deleted is true for a chain that was deleted; the head has no documents then.
	Deleted bool `json:"deleted,omitzero"`
	// Serving is the document that decides; nil if there is none. Shadow is the document that is
	// evaluated beside it, only to count how many decisions differ; nil if there is none.
	Serving json.RawMessage `json:"serving,omitempty"`
	Shadow  json.RawMessage `json:"shadow,omitempty"`
}
