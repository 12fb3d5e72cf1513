package console

import (
	"cmp"
	"encoding/json"
	"slices"
)

const (
	// maxNews is the number of nodes that a frame of the topic nodes tells of. More come in the next
	// frames.
	maxNews = 500
	// maxParts is the number of such frames. A viewer who has missed more reads all nodes anew.
	maxParts = 4
)

// nodesNews is what has changed of nodes, except their figures.
type nodesNews struct {
	// Base and Revision are the changes that the frame is relative to, and up to which it is all.
	Base     uint64 `json:"base"`
	Revision uint64 `json:"revision"`
	// Changed has nodes as GET /v1/nodes has them, without their connections. Gone has ids; a node
	// that is back is not among them.
	Changed []any    `json:"changed,omitempty"`
	Gone    []string `json:"gone,omitempty"`
	// Reload is true where the viewer has to read GET /v1/nodes first.
	Reload bool `json:"reload,omitempty"`
}

// nodesFrame returns what has changed of the nodes since a change.
func nodesFrame(h *hub, head frame, since uint64) (text []byte, through uint64, empty bool) {
	r := h.roster
	news := nodesNews{Base: since, Revision: r.changes, Reload: since == 0 || since < r.forgot}
	var changed []*row
	for i := range r.rows {
		if w := &r.rows[i]; w.told > since && w.state != nodeGone {
			changed = append(changed, w)
		}
	}
	news.Reload = news.Reload || len(changed) > maxParts*r.news
	if !news.Reload {
		if len(changed) > r.news {
			slices.SortFunc(changed, func(a, b *row) int { return cmp.Compare(a.told, b.told) })
			changed = changed[:r.news]
			news.Revision = changed[r.news-1].told
		}
		for _, g := range r.gone {
			if _, back := r.byID[g.id]; g.change > since && !back {
				news.Gone = append(news.Gone, g.id)
			}
		}
		for _, w := range changed {
			if n, there := h.sources.Node(w.id); there { // otherwise the next look finds it gone
				news.Changed = append(news.Changed, n)
			}
		}
	}
	data, err := json.Marshal(news)
	if err != nil || len(data) > maxFrame {
		news.Changed, news.Gone, news.Reload, news.Revision = nil, nil, true, r.changes
		data, _ = json.Marshal(news) // two numbers
	}
	head.Data = data
	return encode(&head), news.Revision, !news.Reload && len(news.Changed) == 0 && len(news.Gone) == 0
}
