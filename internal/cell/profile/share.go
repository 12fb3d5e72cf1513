package profile

import (
	"maps"
	"slices"
	"unique"

	"github.com/freeslot/freeslot"
)

// Normalize removes the differences between a profile as its agent stated it, which comes with an
// event, and the same profile as Redis has it. It changes n and its lists.
func Normalize(n *freeslot.Node) {
	slices.Sort(n.Pools)
	n.Pools = slices.Compact(n.Pools)
	if n.Services == nil {
		n.Services = []freeslot.Service{}
	}
}

// Share makes the strings of a profile share memory with other profiles. The nodes of a fleet use
// the same few hundred names, which would otherwise fill most of a cache's memory. It changes n and
// its lists.
func Share(n *freeslot.Node) {
	for i := range n.Services {
		s := &n.Services[i]
		s.Name, s.Version, s.Endpoint = one(s.Name), one(s.Version), one(s.Endpoint)
	}
	n.Services = slices.Clip(n.Services)
	for _, list := range []*[]string{&n.Pools, &n.Languages.ASR, &n.Languages.TTS, &n.Languages.Semantic} {
		for i, s := range *list {
			(*list)[i] = one(s)
		}
		*list = slices.Clip(*list)
	}
	if len(n.Labels) > 0 {
		labels := make(map[string]string, len(n.Labels))
		for name, value := range n.Labels {
			labels[one(name)] = one(value)
		}
		n.Labels = labels
	}
	if len(n.Features) > 0 {
		features := maps.Clone(n.Features)
		clear(features)
		for name, on := range n.Features {
			features[one(name)] = on
		}
		n.Features = features
	}
}

func one(s string) string { return unique.Make(s).Value() }
