package class

import (
	"hash/maphash"

	"github.com/freeslot/freeslot"
)

// hashSeed differs from process to process, so that a client cannot aim at collisions.
var hashSeed = maphash.MakeSeed()

// Hash returns a hash of "service with requirement r" as the client stated it. If [Same] is true
// for two requirements, they have one hash; the order of labels makes no difference. It allocates
// nothing. It differs from process to process.
func Hash(service string, r *freeslot.Requirement) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	hashString(&h, service)
	hashString(&h, r.Pool)
	hashString(&h, r.PreferredPool)
	hashString(&h, r.SourceLanguage)
	hashString(&h, r.TargetLanguage)
	hashList(&h, r.Services)
	hashList(&h, r.Features)
	for i := range r.LabelRules {
		rule := &r.LabelRules[i]
		hashString(&h, rule.Label)
		hashString(&h, string(rule.Operator))
		hashList(&h, rule.Values)
	}
	sum := h.Sum64()
	for name, value := range r.Labels {
		h.Reset()
		hashString(&h, name)
		hashString(&h, value)
		sum += h.Sum64()
	}
	return sum
}

// hashString ends each string with a zero byte, which no name contains.
func hashString(h *maphash.Hash, s string) {
	_, _ = h.WriteString(s)
	_ = h.WriteByte(0)
}

func hashList(h *maphash.Hash, list []string) {
	for _, s := range list {
		hashString(h, s)
	}
	_ = h.WriteByte(1) // the end of the list
}
