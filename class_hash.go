package freeslot

import (
	"math/bits"
	"math/rand/v2"
)

// hashSeed is another one in each process, so that nobody outside can aim at
// collisions. All that one costs is a comparison that fails.
var hashSeed = rand.Uint64()

// Odd numbers, one for each part, so that a value counts differently in each.
const (
	hashService   = 0xa0761d6478bd642f
	hashPool      = 0x9e3779b97f4a7c15
	hashPreferred = 0xc2b2ae3d27d4eb4f
	hashSource    = 0x165667b19e3779f9
	hashTarget    = 0xd6e8feb86659fd93
	hashServices  = 0xff51afd7ed558ccd
	hashLabels    = 0xbf58476d1ce4e5b9
	hashRules     = 0x94d049bb133111eb
)

// ClassHash is a hash of "service with requirement r" as it is stated: equal for
// what [SameRequirement] calls equal, and the order of labels makes no difference.
// It allocates nothing and differs from process to process.
func (r *Requirement) ClassHash(service string) uint64 {
	return r.UnlabelledHash(service) + r.LabelsHash()
}

// UnlabelledHash is the part of ClassHash without Labels, going through which takes
// longer than all the rest; LabelsHash is the other part. Their sum is ClassHash.
func (r *Requirement) UnlabelledHash(service string) uint64 {
	h := hashString(hashService, service)
	if r.Pool != "" {
		h += hashString(hashPool, r.Pool)
	}
	if r.PreferredPool != "" {
		h += hashString(hashPreferred, r.PreferredPool)
	}
	if r.SourceLanguage != "" {
		h += hashString(hashSource, r.SourceLanguage)
	}
	if r.TargetLanguage != "" {
		h += hashString(hashTarget, r.TargetLanguage)
	}
	if len(r.Services)+len(r.LabelRules) > 0 {
		h += r.hashLists()
	}
	return h
}

// LabelsHash is the part of ClassHash that comes from Labels.
func (r *Requirement) LabelsHash() (h uint64) {
	for name, value := range r.Labels {
		h += hashString(hashString(hashLabels, name), value)
	}
	return h
}

func (r *Requirement) hashLists() uint64 {
	h := hashList(hashServices, r.Services)
	for i := range r.LabelRules {
		rule := &r.LabelRules[i]
		h = hashString(h^hashRules, rule.Label)
		h = hashString(h, string(rule.Operator))
		h = hashList(h, rule.Values)
	}
	return h
}

func hashList(h uint64, list []string) uint64 {
	for _, s := range list {
		h = hashString(h, s)
	}
	return h
}

// hashString mixes s into h by one 128-bit product of its ends (all of it, up to 16
// bytes), as wyhash does. The strings here are names, mostly that short, for which
// this takes a fraction of what a call of hash/maphash takes.
func hashString(h uint64, s string) uint64 {
	var a, b uint64
	switch n := len(s); {
	case n > 16:
		h = hashLong(h, s)
		a, b = load64(s), load64(s[n-8:])
	case n >= 8:
		a, b = load64(s), load64(s[n-8:])
	case n >= 4:
		a, b = load32(s), load32(s[n-4:])
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n/2])<<8 | uint64(s[n-1])
	}
	hi, lo := bits.Mul64(a^h^hashSeed, b^hashTarget^uint64(len(s)))
	return hi ^ lo
}

// hashLong mixes in all but the last bytes of s.
func hashLong(h uint64, s string) uint64 {
	for ; len(s) > 8; s = s[8:] {
		hi, lo := bits.Mul64(load64(s)^h^hashSeed, hashSource)
		h = hi ^ lo
	}
	return h
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
